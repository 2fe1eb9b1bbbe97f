//! Rule: Markdown is wrapped at 100 columns. Tables, headings, code blocks and links cannot be wrapped.

use super::Finding;

const MAX_COLUMNS: usize = 100;

pub(super) fn check(file: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (i, line) in text.lines().enumerate() {
        let marker = line.trim_start();
        if marker.starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced || marker.starts_with('|') || marker.starts_with('#') {
            continue;
        }
        let columns = without_link_targets(line).chars().count();
        if columns > MAX_COLUMNS {
            let advice = format!("{columns} columns: wrap this line at {MAX_COLUMNS}");
            found.push(Finding::new(file, i + 1, advice));
        }
    }
    found
}

/// `[text](target)` without its target, and an address without anything.
fn without_link_targets(line: &str) -> String {
    let mut left = String::new();
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once("](") {
        left.push_str(before);
        rest = behind.split_once(')').map_or("", |(_, behind)| behind);
    }
    left.push_str(rest);
    left.split(' ').filter(|word| !word.contains("://")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_found_unless_it_cannot_be_wrapped() {
        let long = "word ".repeat(21);
        let long = long.trim_end();
        let found = |text: &str| check("a.md", text).len();
        assert_eq!(found(&format!("short\n{long}\n")), 1);
        assert_eq!(found(&format!("- {long}\n")), 1);
        assert_eq!(found(&format!("| {long} |\n## {long}\n```\n{long}\n```\n")), 0);
        assert_eq!(found(&format!("See [this](https://example.org/{}).", "x".repeat(100))), 0);
        assert_eq!(found(&format!("See https://example.org/{}", "x".repeat(100))), 0);
        assert!(check("a.md", long)[0].to_string().starts_with("a.md:1: 104 columns"));
    }
}
