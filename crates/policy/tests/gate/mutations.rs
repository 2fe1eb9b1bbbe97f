//! The differential test by mutation: short commands that the gate allows, with text inserted at every position, and
//! here-documents of every quoting. A real bash runs whatever the gate allows, alone or beside a grant for `git
//! commit`. Every program that it starts must be in the plan, and no file may change.
//!
//! `CSN_MUTATIONS` sets the number of commands, `CSN_SEED` repeats a run.

use crate::{
    generate::{Random, seed},
    jail::{Jail, TextEffects, explains},
    support::{grant, verdict_word},
};
use countersign_model::{Facts, Grants, Plan};
use countersign_policy::{CheckedRules, JudgeContext, judge};
use std::collections::HashSet;

/// Commands that are allowed beside a grant for `git commit`, and that contain text which would not be allowed if it
/// were read differently.
const SEEDS: &[&str] = &[
    "git commit -m 'x $(beta) y'",
    "git commit -m 'x `beta` y'",
    "git commit -m 'x ; beta ; y'",
    "git commit -m \"x ; beta ; y\"",
    "git commit -m \"x \\$(beta) y\"",
    "git commit -m \"x \\`beta\\` y\"",
    "git commit -m \"x $ (beta) y\"",
    "git commit -m x\\;beta",
    "v=a; git commit -m \"$v\" '$(beta)'",
    "git commit -m $'x\\'; beta #'",
    "git commit -m \"it's\" -m 'a \"b\" $(beta)'",
    "git commit -m \"$(cat <<'E'\nx $(beta)\nE\n)\"",
    "git commit -m \"$(cat <<E\nx \\$(beta)\nE\n)\"",
    "git commit -m \"${v:-x \\$(beta)}\"",
    "echo ${v:-'x $(beta)'}",
    "git commit -F - <<'E'\nx\nbeta\nE",
    "git commit -F - <<E\nx\nbeta\nE",
    "git commit -F - <<-E\n\tx\n\tbeta\n\tE",
    "git commit -F - <<< 'x; beta'",
    "git commit -m x # ; beta",
    "git commit -m x; # beta\nls",
    "git commit -m x && ls '; beta'",
    "git commit -m x || echo '|| beta'",
    "git commit -m x | cat '| beta'",
    "echo $(ls '; beta')",
    "echo \"$(ls '; beta')\"",
    "echo \"$(ls \"; beta\")\"",
    "echo `ls '; beta'`",
    "echo \"`ls '; beta'`\"",
    "echo $(echo '$(beta)')",
    "echo '$(beta)'",
    "echo \"a\\$(beta)\"",
    "echo a#beta '#' beta",
    "echo a \\# beta; ls",
    "echo a > /dev/null; ls '> beta'",
    "echo a 2>&1 | sort 'beta'",
    "echo {a,'b;beta'}",
    "echo ${v:-beta}",
    "echo \"${v:-beta}\"",
    "echo ${v#beta} ${v%%beta}",
    "echo \"${v/beta/x}\"",
    "echo $((1 + 2)) beta",
    "echo $[1 + 2] beta",
    "echo ~ '~beta'",
    "echo \\\nbeta",
    "echo a\\\n beta",
    "echo \"a\\\n$v beta\"",
    "echo '\\\n$(beta)'",
    "cat <<E\n\\$(beta)\nE",
    "cat <<E\nbeta\nE",
    "cat <<'E'\n$(beta)\nE",
    "cat <<\"E\"\n$(beta) `beta`\nE",
    "cat <<\\E\n$(beta)\nE\nls",
    "cat <<-'E'\n\t$(beta)\n\tE\nls",
    "cat <<A <<'B'\nbeta\nA\n$(beta)\nB",
    "cat <<E | sort\nbeta\nE",
    "cat <<E && ls\nbeta\nE",
    "(cat <<E\nbeta\nE\n)",
    "{ cat <<E\nbeta\nE\n}",
    "if cat <<E\nbeta\nE\nthen ls; fi",
    "for v in a b; do cat <<E\nbeta\nE\ndone",
    "echo $(cat <<E\nbeta\nE\n)",
    "echo $(cat <<'E'\n$(beta)\nE\n)",
    "echo `cat <<E\nbeta\nE\n`",
    "ls; ls 'beta'",
    "ls & ls 'beta'",
    "ls && ls \"beta\"",
    "ls | head 'beta'",
    "ls |& head 'beta'",
    "( ls 'beta' )",
    "{ ls 'beta'; }",
    "! ls 'beta'",
    "time ls 'beta'",
    "time -p ls 'beta'",
    "if ls; then ls 'beta'; fi",
    "if ls; then ls; elif ls; then ls 'beta'; else ls; fi",
    "while false; do ls 'beta'; done",
    "until true; do ls 'beta'; done",
    "for v in a 'beta'; do ls; done",
    "for v in 'a; beta' b\ndo ls\ndone",
    "case a in a) ls 'beta';; esac",
    "case 'beta' in (a|b) ls;; *) ls 'beta';; esac",
    "case a in 'beta') ls ;& b) ls ;;& *) ls;; esac",
    "[[ a == 'beta' ]]",
    "[[ -f a.txt && a != \"beta\" ]] && ls",
    "[[ a =~ (b|beta) ]] || ls",
    "[[ a =~ ^[a-z]+$ ]] && ls 'beta'",
    "[ a = 'beta' ]; ls",
    "test -f a.txt -o 'beta'; ls",
    "v='beta'; ls",
    "LC_ALL=C ls '$(beta)'",
    "v=a; echo \"$v\" '$(beta)'",
    "a=(x 'beta'); ls",
    "a=(x '$(beta)' \"y\"); ls",
    "a=([0]='beta' [1]=x); ls",
    "bash -c 'ls beta'",
    "bash -c 'echo \"\\$(beta)\"'",
    "bash -c \"ls 'beta'\"",
    "bash -c 'cat <<E\nbeta\nE'",
    "env ls '; beta'",
    "timeout 5 ls '; beta'",
    "nice ls 'beta'",
    "command ls 'beta'",
    "printf '%s\\n' 'beta'",
    "cat < a.txt '< beta'",
    "cat 0< a.txt 2>/dev/null 'beta'",
    "ls &>/dev/null; ls 'beta'",
    "sort <<< beta",
    "sort <<< '$(beta)' a.txt",
    "sort <(ls 'beta')",
    "sort <(cat <<E\nbeta\nE\n)",
    "grep -e 'beta' a.txt",
    "grep -e \"a\\|beta\" a.txt | head -n 1",
    "ls *.txt 'beta' ?.txt [a-b].txt",
    "ls \"a b\" 'c d' e\\ beta",
    "cd sub && ls 'beta'",
    "true; false; : 'beta'",
    "ls a.txt; # it's beta\nls b.txt",
    "ls # beta \\\nls",
    "ls \\\n  -l \\\n  'beta'",
    "git status; git log -n 1 'beta'",
    "git log --format='%h $(beta)' -n 1",
];

/// The inserted texts.
const PIECES: &[&str] = &[
    "\\\n",
    "\\\n",
    "\\\n",
    "'",
    "\"",
    "$",
    "`",
    "{",
    "}",
    "(",
    ")",
    "#",
    "\r",
    "\r\n",
    "\t",
    "\u{a0}",
    "\u{2003}",
    "\u{1}",
    "\u{7f}",
    "\u{b}",
    "\u{c}",
    "!",
    ";",
    "&",
    "|",
    "<",
    ">",
    "<<E\n",
    "\\",
    "''",
    "\"\"",
    "$''",
    "$\"\"",
    "~",
    "=",
    "[",
    "]",
    "*",
    "\n",
    " ",
    "$(",
    "${",
    "<(",
    "((",
    "))",
    "[[ ",
    " ]]",
    "E\n",
    "\nE\n",
    " # ",
    "\\\\\n",
    ";;",
    "case x in ",
    " esac ",
    "; do ",
    "; done",
    " beta ",
    "<<<",
    "<<-",
    "@(",
    "$[",
    ",",
    "..",
    "?",
    "^",
    "-",
    "+",
    "\\'",
    "\\\"",
    " =~ ",
    "\nbeta\n",
    "; beta",
    "$(beta)",
    "`beta`",
    "&>",
    ">&",
    "|&",
    "1",
    "x=",
    "a[",
    "if ",
    " then ",
    " fi ",
    "function f ",
    "() ",
    "é",
    "\u{feff}",
    "\\\r\n",
    "%",
    "@",
    ":",
    "E",
    "\\$",
];

/// Generates a here-document: its operator and delimiter in some spelling, lines that resemble its end, inside some
/// construct.
fn random_heredoc(r: &mut Random) -> String {
    let bare = match r.below(2) {
        0 => r.pick(&["E", "EOF"]),
        _ => r.pick(&["it's", "a\\b", "A B", "-E", "E)", "\"E", "'E", "<E", "#E", "E\\", "é"]),
    };
    let continued = |r: &mut Random, text: &str| -> String {
        let mut out = String::new();
        for c in text.chars() {
            out.push(c);
            if r.with_percent(2) {
                out.push_str("\\\n");
            }
        }
        out
    };
    let spelled = match r.below(9) {
        0..2 => bare.to_owned(),
        2 => format!("'{bare}'"),
        3 => format!("\"{bare}\""),
        4 => bare.chars().map(|c| format!("\\{c}")).collect(),
        5 => format!("\\{bare}"),
        6 => format!("''{bare}"),
        7 => format!("\"{}\"", bare.replace('\\', "\\\\").replace('"', "\\\"")),
        _ => format!("$'{bare}'"),
    };
    let operator = r.pick(&["<<", "<<", "<<", "<<", "<<-", "<<-", "<< ", "<<- ", "<<<", "0<<", "3<<"]);
    let operator = continued(r, operator);
    let spelled = continued(r, &spelled);
    let mut lines = String::new();
    for _ in 0..r.below(4) {
        let line = match r.below(18) {
            0 => format!("{bare} "),
            1 => format!("\t{bare}"),
            2 => format!("{bare})"),
            3 => format!("{bare}\r"),
            4 => continued(r, bare),
            5 => "x\\".to_owned(),
            6 => "x\\\\".to_owned(),
            7 | 14 | 15 => "beta".to_owned(),
            8 => "\\$(beta)".to_owned(),
            9 => "$\\\n(beta)".to_owned(),
            10 => spelled.clone(),
            11 => bare.replace(['\'', '"', '\\'], ""),
            12 => bare.to_owned(),
            _ => "it's a \"line\" (of text)".to_owned(),
        };
        lines.push_str(&line);
        lines.push('\n');
    }
    if r.with_percent(12) {
        // Its end inside a substitution, and what would follow.
        lines.push_str(&format!("{bare}{}\nbeta\n", r.pick(&[")", " )", "; ls)", ")\""])));
    }
    let command = r.pick(&["cat", "git commit -F -", "sort", "head -n 1"]);
    let tail = r.pick(&["", "", " | sort", " && ls", "; ls", " a.txt", " <<B", " # x"]);
    let other = if tail == " <<B" { "beta\nB\n" } else { "" };
    // The text behind it, and text that would be behind it if it ended later.
    let end = match r.below(9) {
        0..4 => r.pick(&["", "ls\n", "\tls\n"]).to_owned(),
        4 => format!("beta\n{bare}\n"),
        // With the delimiter's letters only; and never.
        5 => format!("beta\n{}\n", bare.replace(['\'', '"', '\\'], "")),
        6 => "beta\n".to_owned(),
        _ => format!("ls\ncat <<'{bare}'\nbeta\n{bare}\n"),
    };
    let text = format!("{command} {operator}{spelled}{tail}\n{lines}{bare}\n{other}{end}");
    match r.below(12) {
        0 => format!("echo $({text})"),
        1 => format!("echo \"$({text})\""),
        2 => format!("sort <({text})"),
        3 => format!("echo `{text}`"),
        4 => format!("({text})"),
        5 => format!("{{ {text}\n}}"),
        6 => format!("for v in a; do {text}\ndone"),
        7 => format!("bash -c '{}'", text.replace('\'', "'\\''")),
        8 => format!("if {text}\nthen ls; fi"),
        _ => text,
    }
}

fn boundaries(text: &str) -> Vec<usize> {
    text.char_indices().map(|(n, _)| n).chain([text.len()]).collect()
}

/// Inserts, removes or replaces text at random positions.
fn random_mutation(r: &mut Random) -> String {
    let mut text = r.pick(SEEDS).to_owned();
    for _ in 0..1 + r.below(3) {
        let places = boundaries(&text);
        let at = places[r.below(places.len())];
        match r.below(8) {
            0 if at < text.len() => drop(text.remove(at)),
            1 if at < text.len() => {
                text.remove(at);
                text.insert_str(at, r.pick(PIECES));
            }
            2 => text = format!("{text}{}{}", r.pick(&["; ", "\n", " && ", " | "]), r.pick(SEEDS)),
            _ => text.insert_str(at, r.pick(PIECES)),
        }
    }
    text
}

/// Every piece at every position of every seed; continuations first.
fn systematic_mutations() -> impl Iterator<Item = String> {
    let pieces: HashSet<&str> = PIECES.iter().copied().filter(|p| *p != "\\\n").collect();
    let mut pieces: Vec<&str> = pieces.into_iter().collect();
    pieces.sort_unstable();
    std::iter::once("\\\n").chain(pieces).flat_map(|piece| {
        SEEDS.iter().flat_map(move |seed| {
            boundaries(seed).into_iter().map(move |at| format!("{}{piece}{}", &seed[..at], &seed[at..]))
        })
    })
}

/// The plan of a text that the gate allows.
fn allowed_plan(jail: &Jail, text: &str) -> Option<Plan> {
    let plan = jail.plan(text);
    let home = jail.home();
    let context = JudgeContext::personal(&home, vec![jail.cwd()]);
    let grants = Grants::from_grants(vec![grant("git commit", Some(&jail.cwd()))]);
    let answer = judge(&plan, &Facts::none(&jail.cwd()), &context, &CheckedRules::default(), &grants);
    (verdict_word(&answer) == "allow").then_some(plan)
}

/// What bash did that the plan does not contain.
fn unplanned_effect(plan: &Plan, done: &TextEffects) -> Option<String> {
    let program = done.notes.iter().find(|note| !plan.occurrences.iter().any(|o| explains(o, note)));
    let writes = plan.occurrences.iter().any(|o| o.redirects.iter().any(|r| r.write));
    match program {
        Some(note) => Some(format!("started {} {:?} in {}", note.program, &note.words[1..], note.cwd)),
        None if done.changed && !writes => Some("changed a file".to_owned()),
        None => None,
    }
}

/// How the gate is wrong about a text, if it is.
fn reproduce_finding(jail: &Jail, text: &str) -> Option<String> {
    let plan = allowed_plan(jail, text)?;
    unplanned_effect(&plan, jail.run_all(&[text])?.first()?)
}

/// The smallest part of a text about which the gate is still wrong.
fn shrink_finding(jail: &Jail, text: &str) -> String {
    let (mut text, mut tries, mut at) = (text.to_owned(), 200, 0);
    while let Some(c) = text[at..].chars().next().filter(|_| tries > 0) {
        let less = format!("{}{}", &text[..at], &text[at + c.len_utf8()..]);
        tries -= 1;
        match reproduce_finding(jail, &less) {
            Some(_) => text = less,
            None => at += c.len_utf8(),
        }
    }
    text
}

#[derive(Default)]
struct Tally {
    commands: usize,
    allowed: usize,
    started: usize,
    wrong: Vec<String>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.commands += other.commands;
        self.allowed += other.allowed;
        self.started += other.started;
        self.wrong.extend(other.wrong);
    }

    fn summary(&self) -> String {
        format!("{} commands, {} allowed, {} programs started", self.commands, self.allowed, self.started)
    }
}

fn prove(texts: impl Iterator<Item = String>) -> Tally {
    let (jail, mut tally, mut texts) = (Jail::new(), Tally::default(), texts.peekable());
    while texts.peek().is_some() && tally.wrong.len() < 3 {
        let mut batch: Vec<(String, Plan)> = Vec::new();
        for text in texts.by_ref().take(2000) {
            tally.commands += 1;
            // No argument can contain a NUL; the gate treats it as opaque.
            if !text.contains('\0')
                && let Some(plan) = allowed_plan(&jail, &text)
            {
                batch.push((text, plan));
            }
        }
        let run: Vec<&str> = batch.iter().map(|(text, _)| text.as_str()).collect();
        let done = jail.run_all(&run).expect("bash comes to an end with all that the gate allows");
        for ((text, plan), done) in batch.iter().zip(done) {
            tally.allowed += 1;
            tally.started += done.notes.len();
            // Runs the text again alone, since a background process may belong to another text.
            if unplanned_effect(plan, &done).is_some()
                && reproduce_finding(&jail, text).is_some()
                && tally.wrong.len() < 3
            {
                let text = shrink_finding(&jail, text);
                let what = reproduce_finding(&jail, &text).unwrap_or_default();
                tally.wrong.push(format!("{text:?}\n  {what}"));
            }
        }
    }
    tally
}

fn count() -> usize {
    std::env::var("CSN_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(12_000)
}

#[test]
fn no_inserted_text_hides_a_command_from_the_gate() {
    let (seed, count) = (seed(), count() * 3 / 4);
    // At most half are systematic; the rest are random.
    let ruled = systematic_mutations().count().min(count / 2);
    let halves: Vec<_> = (0..2u64)
        .map(|half| {
            std::thread::spawn(move || {
                let mut r = Random::new(seed.wrapping_add(half));
                let by_rule = systematic_mutations().take(ruled).skip(half as usize).step_by(2);
                prove(by_rule.chain((0..(count - ruled) / 2).map(move |_| random_mutation(&mut r))))
            })
        })
        .collect();
    conclude("mutations", seed, halves);
}

#[test]
fn a_here_document_of_any_quoting_hides_nothing_from_the_gate() {
    let (seed, count) = (seed(), count() / 4);
    let halves: Vec<_> = (0..2u64)
        .map(|half| {
            std::thread::spawn(move || {
                let mut r = Random::new(seed.wrapping_add(half));
                prove((0..count / 2).map(move |_| random_heredoc(&mut r)))
            })
        })
        .collect();
    conclude("here-documents", seed, halves);
}

fn conclude(what: &str, seed: u64, halves: Vec<std::thread::JoinHandle<Tally>>) {
    let mut tally = Tally::default();
    halves.into_iter().for_each(|h| tally.add(h.join().unwrap()));
    println!("{what}: {}", tally.summary());
    assert!(tally.wrong.is_empty(), "CSN_SEED={seed}\n{}", tally.wrong.join("\n"));
    // A gate that allows nothing, or a bash that runs nothing, would prove nothing.
    assert!(tally.allowed * 20 > tally.commands, "{}", tally.summary());
    assert!(tally.started > tally.allowed / 2, "{}", tally.summary());
}

/// A seed that needs approval unchanged would prove nothing.
#[test]
fn every_seed_is_allowed_unchanged() {
    let jail = Jail::new();
    let asked: Vec<&&str> = SEEDS.iter().filter(|seed| allowed_plan(&jail, seed).is_none()).collect();
    assert!(asked.is_empty(), "{asked:#?}");
}
