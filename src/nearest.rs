//! Which names somebody may have meant.

/// How many are shown.
const SHOWN: usize = 3;

/// More wrong letters make another word; as many as the real bpm, and ours, allow.
const MOST_TYPOS: usize = 2;

/// The one of `known` that `word` is a misspelling of.
pub fn meant<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distances = known.into_iter().map(|known| (strsim::levenshtein(word, known), known));
    distances.min().filter(|(distance, _)| *distance <= MOST_TYPOS).map(|(_, nearest)| nearest)
}

/// The few of `known` that are most like `name`, the nearest first.
///
/// Of a RELEASE/JOB somebody may have left out the release: then the job alone is compared.
pub fn names<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let distance = |known: &&str| {
        let last = known.rsplit('/').next().unwrap_or(known);
        strsim::levenshtein(name, if name.contains('/') { known } else { last })
    };
    let mut names: Vec<&str> = known.into_iter().collect();
    names.sort_by_key(distance);
    names.truncate(SHOWN);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelling_has_at_most_two_wrong_letters() {
        for (word, expected) in
            [("sned", Some("send")), ("seend", Some("send")), ("list", Some("list")), ("x", None)]
        {
            assert_eq!(meant(word, ["send", "probe", "list"]), expected, "{word}");
        }
    }

    #[test]
    fn the_nearest_come_first_and_only_a_few() {
        let known = ["silk/silk-daemon", "routing/gorouter", "routing/tcp_router", "pxc/pxc-mysql"];
        assert_eq!(names("goruter", known)[0], "routing/gorouter");
        assert_eq!(names("routing/tcprouter", known)[0], "routing/tcp_router");
        assert_eq!(names("x", known).len(), SHOWN);
        assert_eq!(names("x", []), Vec::<&str>::new());
    }
}
