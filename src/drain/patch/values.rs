//! What a template is filled with: values, or the ERB expressions that will give them.

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

use super::catalogue::{Kind, Patch, Property, Source};
use crate::shell;

/// A `--set` that names no property, or gives a value that it cannot have.
#[derive(Debug)]
pub struct WrongSetting(String);

impl fmt::Display for WrongSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongSetting {}

/// The `--set` options: names with their values, checked.
#[derive(Debug, Default)]
pub struct Settings(Vec<(&'static str, String)>);

impl Settings {
    /// Reads `NAME=VALUE` words. Each name must be a property of at least one of the patches.
    ///
    /// # Errors
    ///
    /// [`WrongSetting`].
    pub fn parse(words: &[String], patches: &[&'static Patch]) -> Result<Self> {
        words.iter().map(|word| parse(word, patches)).collect::<Result<_, _>>().map(Self).map_err(Into::into)
    }

    /// The last one wins.
    fn value_of(&self, property: &Property) -> &str {
        let settings = self.0.iter().rev();
        let set =
            settings.map(|(name, value)| (*name, value.as_str())).find(|(name, _)| *name == property.name);
        set.map_or(property.default, |(_, value)| value)
    }
}

fn parse(word: &str, patches: &[&'static Patch]) -> Result<(&'static str, String), WrongSetting> {
    let wrong = |reason: String| WrongSetting(format!("cannot set {word:?}: {reason}"));
    let (name, value) = word.split_once('=').ok_or_else(|| wrong("expected NAME=VALUE".to_owned()))?;
    let properties = || patches.iter().flat_map(|patch| patch.properties);
    let Some(property) = properties().find(|property| property.name == name) else {
        let mut known: Vec<&str> = properties().map(|property| property.name).collect();
        known.sort_unstable();
        known.dedup();
        return Err(wrong(match &known[..] {
            [] => "nothing can be set here".to_owned(),
            _ => format!("no property is called that, but {}", known.join(", ")),
        }));
    };
    match property.kind {
        // Normalized: a shell would take 010 for 8.
        Kind::Number => match value.parse::<u32>() {
            Ok(number) => Ok((property.name, number.to_string())),
            Err(_) => Err(wrong("expected a whole number, 0 or more".to_owned())),
        },
        Kind::Text if value.chars().any(char::is_control) => {
            Err(wrong("a control character is not allowed".to_owned()))
        }
        Kind::Text => Ok((property.name, value.to_owned())),
    }
}

/// What a template sees: words of shell, or of ERB that give words of shell.
pub struct Values {
    /// The line by which a rendered file is known to be ours.
    pub mark: String,
    /// BOSH's name of the job.
    pub job: &'static str,
    /// The BOSH root when the script runs.
    pub root: String,
    /// Whether the values are ERB expressions.
    pub erb: bool,
    properties: Vec<(&'static str, String)>,
}

impl Values {
    /// Properties as they were set, or else their defaults.
    pub fn plain(patch: &Patch, settings: &Settings, target_root: &Path) -> Result<Self> {
        let word = |property: &Property| {
            let value = settings.value_of(property);
            match property.kind {
                Kind::Number => value.to_owned(),
                Kind::Text => shell::word(value),
            }
        };
        Self::new(patch, target_root, false, word)
    }

    /// Properties that are found out when the job's templates are rendered.
    pub fn erb(patch: &Patch, target_root: &Path) -> Result<Self> {
        Self::new(patch, target_root, true, erb_word)
    }

    fn new(patch: &Patch, target_root: &Path, erb: bool, word: impl Fn(&Property) -> String) -> Result<Self> {
        let Some(root) = target_root.to_str() else {
            bail!("cannot write {} into a script: it is not UTF-8", target_root.display());
        };
        let root = shell::word(root);
        Ok(Self {
            mark: patch.mark(),
            job: patch.job,
            // In ERB `<%%` is a plain `<%`.
            root: if erb { root.replace("<%", "<%%") } else { root },
            erb,
            properties: patch.properties.iter().map(|property| (property.name, word(property))).collect(),
        })
    }

    /// The value of a property of the patch, for its template.
    ///
    /// # Errors
    ///
    /// The catalogue has no such property for this patch.
    pub fn property(&self, name: &str) -> askama::Result<&str> {
        let found = self.properties.iter().find(|(known, _)| *known == name);
        found.map(|(_, word)| word.as_str()).ok_or_else(|| {
            askama::Error::custom(format!("the catalogue has no property {name} for {}", self.job))
        })
    }
}

/// An ERB expression that gives the property's value as one word of shell.
fn erb_word(property: &Property) -> String {
    let default = match property.kind {
        Kind::Number => property.default.to_owned(),
        Kind::Text => format!("{:?}", property.default),
    };
    let value = match property.source {
        Source::Property(name) => format!(r#"p("{name}", {default})"#),
        Source::Instance(name) => format!("({name} || {default})"),
    };
    match property.kind {
        Kind::Number => format!("<%= {value} %>"),
        // A list will do as well as text with commas.
        Kind::Text => {
            format!(r#"<%= require "shellwords"; [{value}].flatten.join(",").shellescape %>"#)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::*;

    fn settings(words: &[&str], patch: &str) -> Result<Settings> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Settings::parse(&words, &[find(patch).unwrap()])
    }

    #[test]
    fn numbers_are_checked_and_normalized_and_the_last_setting_wins() {
        let patch = find("capi/cloud_controller_ng").unwrap();
        let set = settings(&["nginx_drain_timeout=5", "nginx_drain_timeout=010"], "capi/cloud_controller_ng");
        let values = Values::plain(patch, &set.unwrap(), Path::new("/r")).unwrap();
        assert_eq!(values.property("nginx_drain_timeout").unwrap(), "10");
        assert_eq!(values.property("number_of_workers").unwrap(), "2");
        assert!(values.property("nosuch").is_err());
    }

    #[test]
    fn what_cannot_be_set_is_refused_with_the_reason() {
        for (word, reason) in [
            ("nginx_drain_timeout", "expected NAME=VALUE"),
            ("nginx_drain_timeout=", "whole number"),
            ("nginx_drain_timeout=x", "whole number"),
            ("nginx_drain_timeout=-1", "whole number"),
            ("nginx_drain_timeout=1.5", "whole number"),
            ("nginx_drain_timeout=1;id", "whole number"),
            ("nginx_drain_timeout=99999999999", "whole number"),
            ("cc.nginx_drain_timeout=1", "no property is called that, but local_worker_grace"),
            ("=1", "no property is called that"),
        ] {
            let error = settings(&[word], "capi/cloud_controller_ng").unwrap_err();
            assert!(error.is::<WrongSetting>());
            assert!(error.to_string().contains(reason), "{error}");
        }
        let error = settings(&["x=1"], "routing/gorouter").unwrap_err().to_string();
        assert!(error.ends_with("nothing can be set here"), "{error}");
        let error = settings(&["frontends=a\nb"], "haproxy/haproxy").unwrap_err().to_string();
        assert!(error.contains("control character") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn text_is_one_word_of_shell() {
        let patch = find("haproxy/haproxy").unwrap();
        let set = settings(&["frontends=a b,c'd"], "haproxy/haproxy").unwrap();
        let values = Values::plain(patch, &set, Path::new("/r")).unwrap();
        assert_eq!(values.property("frontends").unwrap(), r"'a b,c'\''d'");
    }

    #[test]
    fn in_erb_properties_stay_properties() {
        let word = |patch: &str, name: &str| {
            let values = Values::erb(find(patch).unwrap(), Path::new("/r<%x")).unwrap();
            assert_eq!(values.root, "'/r<%%x'");
            values.property(name).unwrap().to_owned()
        };
        assert_eq!(
            word("capi/cloud_controller_ng", "nginx_drain_timeout"),
            r#"<%= p("cc.nginx_drain_timeout", 30) %>"#
        );
        assert_eq!(word("capi/cloud_controller_worker", "index"), "<%= (index || 0) %>");
        assert!(word("pxc/pxc-mysql", "node_urls").contains(r#"[p("node_urls", "")]"#));
    }
}
