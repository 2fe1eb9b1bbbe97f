//! Matches one component of a glob against one file name, as a shell does.

/// Whether one component of a glob matches a name. A leading dot must be written out.
#[must_use]
pub fn glob_matches(glob: &str, name: &str) -> bool {
    if name.starts_with('.') && !glob.starts_with(['.', '\\']) {
        return false;
    }
    let (glob, name): (Vec<char>, Vec<char>) = (glob.chars().collect(), name.chars().collect());
    let (mut g, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        let step = match glob.get(g) {
            Some('*') => {
                retry = Some((g, n));
                g += 1;
                continue;
            }
            Some('?') => Some(1),
            Some('[') => match glob[g + 1..].iter().skip(1).position(|c| *c == ']') {
                Some(end) => {
                    let set = &glob[g + 1..g + 2 + end];
                    let (negated, set) = match set.first() {
                        Some('!' | '^') => (true, &set[1..]),
                        _ => (false, set),
                    };
                    let mut found = set.contains(&name[n]);
                    for range in set.windows(3) {
                        found |= range[1] == '-' && range[0] <= name[n] && name[n] <= range[2];
                    }
                    // Classes such as [[:alpha:]] are not interpreted: they may match.
                    found |= set.contains(&':');
                    (found != negated).then_some(end + 3)
                }
                None => (name[n] == '[').then_some(1),
            },
            Some('\\') => (glob.get(g + 1) == Some(&name[n])).then_some(2),
            Some(c) => (*c == name[n]).then_some(1),
            None => None,
        };
        match (step, retry) {
            (Some(step), _) => (g, n) = (g + step, n + 1),
            (None, Some((star, from))) => {
                retry = Some((star, from + 1));
                (g, n) = (star + 1, from + 1);
            }
            (None, None) => return false,
        }
    }
    glob[g..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_matches_like_in_a_shell() {
        for (glob, name, expect) in [
            ("*.rs", "a.rs", true),
            ("*.rs", ".rs", false),
            (".e*", ".env", true),
            ("*", ".env", false),
            ("a?c", "abc", true),
            ("[ab]*", "bcd", true),
            ("[!ab]*", "bcd", false),
            ("[a-c]x", "bx", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("*a*b*", "xxaxxbxx", true),
            ("k*", "countersign", false),
        ] {
            assert_eq!(glob_matches(glob, name), expect, "{glob} {name}");
        }
    }
}
