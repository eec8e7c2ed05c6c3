//! Words of shell, for the scripts that we generate.

/// Text as one word of shell, whatever is in it.
pub fn word(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_in_a_word_is_evaluated() {
        for (text, word) in [("/var/vcap", "'/var/vcap'"), ("it's $(here)", r"'it'\''s $(here)'"), ("", "''")]
        {
            assert_eq!(super::word(text), word);
        }
    }
}
