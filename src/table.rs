//! Tables for people.

/// Columns as wide as their widest cell, with `gap` between them, and no blanks at line ends.
pub fn print<const COLUMNS: usize>(rows: &[[String; COLUMNS]], gap: &str) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join(gap).trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_and_has_no_blanks_at_its_line_ends() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        let rows = [
            row(["Name", "Pid", "Status"]),
            row(["job", "-", "stopped"]),
            row(["job.long", "12345", "running"]),
        ];
        assert_eq!(
            print(&rows, " "),
            "Name     Pid   Status\njob      -     stopped\njob.long 12345 running\n"
        );
    }
}
