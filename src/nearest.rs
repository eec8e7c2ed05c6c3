//! "Did you mean": the names that are nearest to a mistyped one.

/// How alike two names must be, from 0 to 1, to be worth a mention.
const ALIKE: f64 = 0.8;

/// At most so many are named.
const MOST: usize = 3;

/// ` (did you mean A or B?)`, or nothing if no name is near.
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let mut near: Vec<(f64, &str)> = known
        .into_iter()
        .map(|other| (strsim::jaro_winkler(name, other), other))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .collect();
    near.sort_by(|one, other| other.0.total_cmp(&one.0));
    let names: Vec<&str> = near.into_iter().take(MOST).map(|(_, name)| name).collect();
    if names.is_empty() { String::new() } else { format!(" (did you mean {}?)", names.join(" or ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_come_first_and_strangers_not_at_all() {
        let known = ["gorouter", "tcp_router", "cloud_controller_ng"];
        assert_eq!(hint("goruter", known), " (did you mean gorouter?)");
        assert_eq!(hint("xyz", known), "");
        assert_eq!(hint("x", []), "");
    }
}
