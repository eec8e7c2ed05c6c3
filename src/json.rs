//! Writing JSON (RFC 8259). All that is needed are flat objects of few kinds of values, for which
//! a library would be larger than the rest of the program's printing.

use std::fmt::Write;

/// A text as JSON.
pub fn text(text: &str) -> String {
    let mut json = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => json.extend(['\\', character]),
            '\n' => json.push_str("\\n"),
            // All others that must be escaped; no text of ours has any of the rarer short forms.
            '\0'..='\x1f' => _ = write!(json, "\\u{:04x}", u32::from(character)),
            _ => json.push(character),
        }
    }
    json.push('"');
    json
}

/// A value that prints as it is written in JSON: a number, a boolean.
pub fn plain(value: impl ToString) -> String {
    value.to_string()
}

/// What `value` is in JSON; `null` for nothing.
pub fn or_null<T>(value: Option<T>, json: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "null".to_owned(), json)
}

/// An object of these members; the values are JSON already.
pub fn object(members: &[(&str, String)]) -> String {
    let members: Vec<_> = members.iter().map(|(name, value)| format!("{}:{value}", text(name))).collect();
    format!("{{{}}}", members.join(","))
}

/// An array of these values, each on a line of its own.
pub fn array(values: &[String]) -> String {
    if values.is_empty() { "[]".to_owned() } else { format!("[\n{}\n]", values.join(",\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_comes_back_as_it_was() {
        let all: String =
            (0..=0x2fff).chain([0xfffd, 0x1f600, 0x10ffff]).filter_map(char::from_u32).collect();
        assert_eq!(serde_json::from_str::<String>(&text(&all)).unwrap(), all);
        assert!(!text(&all).contains('\n'), "it is one line");
    }

    #[test]
    fn objects_and_arrays_are_what_they_are_read_as() {
        let member = object(&[("a\"b", text("c")), ("n", plain(1.5)), ("none", or_null(None, text))]);
        let values = [member, object(&[])];
        let expected = serde_json::json!([{"a\"b": "c", "n": 1.5, "none": null}, {}]);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&array(&values)).unwrap(), expected);
        assert_eq!(array(&[]), "[]");
    }
}
