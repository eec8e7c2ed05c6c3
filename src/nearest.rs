//! Which names somebody may have meant.

/// How many are shown.
const SHOWN: usize = 3;

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
    fn the_nearest_come_first_and_only_a_few() {
        let known = ["silk/silk-daemon", "routing/gorouter", "routing/tcp_router", "pxc/pxc-mysql"];
        assert_eq!(names("goruter", known)[0], "routing/gorouter");
        assert_eq!(names("routing/tcprouter", known)[0], "routing/tcp_router");
        assert_eq!(names("x", known).len(), SHOWN);
        assert_eq!(names("x", []), Vec::<&str>::new());
    }
}
