//! Generates commands by grammar: common shell features in any combination, over programs that only record their
//! arguments. Also changes commands of the sample at random.

use crate::jail::PROGRAMS;

/// A random generator that a seed reproduces.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    pub(crate) fn with_percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// The seed of this run: a new one, or the one in `CSN_SEED`.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("CSN_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or_else(|| {
        use std::hash::{BuildHasher as _, Hasher as _};
        std::collections::hash_map::RandomState::new().build_hasher().finish() >> 16
    });
    println!("CSN_SEED={seed}");
    seed
}

/// Generates a whole command.
pub(crate) fn script(random: &mut Random) -> String {
    let mut depth = 3;
    list(random, &mut depth)
}

fn list(r: &mut Random, budget: &mut i32) -> String {
    let mut out = pipeline(r, budget);
    for _ in 0..r.below(3) {
        let separator = r.pick(&[" && ", " || ", "; ", "\n", " & ", " ; ", " &&\n", "\n\n", "; # note\n"]);
        out.push_str(separator);
        out.push_str(&pipeline(r, budget));
    }
    out
}

fn pipeline(r: &mut Random, budget: &mut i32) -> String {
    let mut out = String::new();
    if r.with_percent(5) {
        out.push_str(r.pick(&["! ", "time ", "time -p "]));
    }
    out.push_str(&command(r, budget));
    for _ in 0..usize::from(r.with_percent(20)) + usize::from(r.with_percent(6)) {
        out.push_str(r.pick(&[" | ", "|", " |& ", " |\n"]));
        out.push_str(&command(r, budget));
    }
    out
}

fn command(r: &mut Random, budget: &mut i32) -> String {
    *budget -= 1;
    if *budget < -6 || r.with_percent(62) {
        return simple(r, budget);
    }
    match r.below(15) {
        0 => format!("( {} )", list(r, budget)),
        1 => format!("{{ {}\n}}", list(r, budget)),
        2 => format!("if {}; then {}\nfi", pipeline(r, budget), list(r, budget)),
        3 => format!(
            "if {}; then {}\nelif {}; then {}\nelse {}\nfi",
            pipeline(r, budget),
            list(r, budget),
            pipeline(r, budget),
            list(r, budget),
            list(r, budget)
        ),
        4 => format!("for v in {} {}; do {}\ndone", word(r, budget), word(r, budget), list(r, budget)),
        5 => format!(
            "case {} in a*) {};; (b|c) {}\n;; *) {} ;; esac",
            word(r, budget),
            list(r, budget),
            list(r, budget),
            pipeline(r, budget)
        ),
        6 => format!("while false; do {}\ndone", list(r, budget)),
        7 => format!("until true; do {}\ndone", list(r, budget)),
        8 => format!(
            "cd {}",
            r.pick(&[
                "sub",
                "sub/deep",
                ".",
                "./sub",
                "sub/../sub",
                "nowhere",
                "\"sub\"",
                "-- sub",
                "~/x",
                "\"$PWD/sub\""
            ])
        ),
        9 => format!("[[ {} == a* ]] && {}", word(r, budget), simple(r, budget)),
        10 => format!("[ -f a.txt ] && {}", simple(r, budget)),
        11 => format!("pushd {} && {} && popd", r.pick(&["sub", "sub/deep"]), simple(r, budget)),
        12 => format!("bash -c {}", single(&list(r, budget))),
        13 => format!(
            "{} {}",
            r.pick(&[
                "env",
                "env A=1",
                "nice",
                "nice -n 3",
                "timeout 5",
                "command",
                "timeout -k 1 5",
                "stdbuf -oL",
                "bash -c 'alpha inner'; command"
            ]),
            plain_command(r)
        ),
        _ => assignment(r, budget) + "; " + &simple(r, budget),
    }
}

fn plain_command(r: &mut Random) -> String {
    format!(
        "{} {} {}",
        r.pick(PROGRAMS),
        r.pick(&["one", "-n", "'two words'", "a.txt"]),
        r.pick(&["x", "--flag=v", "\"q\""])
    )
}

fn assignment(r: &mut Random, budget: &mut i32) -> String {
    let name = r.pick(&["v", "w", "x"]);
    match r.below(6) {
        0 => format!("{name}={}", r.pick(&["a", "'b c'", "\"d\"", "sub", "*.txt", "", "~/x", "a,b"])),
        1 => format!("{name}=$({})", simple(r, budget)),
        2 => format!("{name}=\"$v-{}\"", r.pick(&["1", "2"])),
        3 => format!("export {name}={}", r.pick(&["a", "b"])),
        4 => format!("{name}+=z"),
        _ => format!("{name}=`{}`", plain_command(r)),
    }
}

fn simple(r: &mut Random, budget: &mut i32) -> String {
    let mut out = String::new();
    if r.with_percent(6) {
        out.push_str(r.pick(&["A=1 ", "B='x y' C=2 ", "LC_ALL=C "]));
    }
    if r.with_percent(4) {
        out.push_str(r.pick(&["2>/dev/null ", ">out.txt ", "</dev/null "]));
    }
    if r.with_percent(12) {
        out.push_str(r.pick(&["echo", "printf '%s\\n'", "true", "false", ":", "test -n"]));
    } else {
        let program = r.pick(PROGRAMS);
        out.push_str(&match r.below(12) {
            0 => format!("\\{program}"),
            1 => format!("{}''{}", &program[..1], &program[1..]),
            2 => format!("\"{program}\""),
            3 => format!("$'{program}'"),
            _ => program.to_owned(),
        });
    }
    for _ in 0..r.below(4) {
        out.push_str(r.pick(&[" ", " ", "  ", "\t", " \\\n"]));
        out.push_str(&word(r, budget));
    }
    if r.with_percent(10) {
        out.push_str(r.pick(&[
            " 2>&1",
            " >/dev/null",
            " > out.txt",
            " >> out.txt",
            " 2>/dev/null",
            " < a.txt",
            " &> out.txt",
            " 2>&-",
            " <<< here",
            " 3>&1",
        ]));
    }
    if r.with_percent(6) {
        let (tag, body) = (r.pick(&["EOF", "'EOF'", "\"E\"", "-EOF"]), word(r, budget));
        let end = tag.trim_matches(['\'', '"', '-']);
        out.push_str(&format!(" <<{tag}\nline {} $(alpha doc)\n{end}\n", body.replace(['\n', '`'], " ")));
        out.push_str(&plain_command(r));
    }
    out
}

fn word(r: &mut Random, budget: &mut i32) -> String {
    *budget -= 1;
    let deep = *budget > -8;
    match r.below(30) {
        0 => "'single $x `q` quoted'".to_owned(),
        1 => "\"double $v quoted\"".to_owned(),
        2 => "$v".to_owned(),
        3 => "\"$v\"".to_owned(),
        4 => "${w}".to_owned(),
        5 => "\"${w:-fall back}\"".to_owned(),
        6 => "${x:-other}".to_owned(),
        7 => "{p,q}".to_owned(),
        8 => "m{1..3}n".to_owned(),
        9 => "pre{a,'b c',\"$v\"}post".to_owned(),
        10 => "*.txt".to_owned(),
        11 => "sub/*".to_owned(),
        12 => "?.txt".to_owned(),
        13 => "no*match".to_owned(),
        14 if deep => format!("$({})", simple(r, budget)),
        15 if deep => format!("\"$({})\"", simple(r, budget)),
        16 => format!("`{}`", plain_command(r)),
        17 => "$((1 + 2))".to_owned(),
        18 => "$'tab\\there\\x41'".to_owned(),
        19 => "a\\ b".to_owned(),
        20 => "\"a\\\"b\\$c\\\\d\"".to_owned(),
        21 if deep => format!("<({})", simple(r, budget)),
        22 => "~/x".to_owned(),
        23 => "--opt=$v".to_owned(),
        24 => "''".to_owned(),
        25 => "a=b".to_owned(),
        26 => "x#y".to_owned(),
        27 => "\"multi\nline\"".to_owned(),
        28 => "${#v}".to_owned(),
        _ => r.pick(&["one", "-n", "two", "a.txt", "sub", "-", "--", "{}", "[x]", "a:b", "%s", "é"]).to_owned(),
    }
}

/// Quotes a text as one word.
fn single(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Changes a command of the sample at random.
pub(crate) fn mutate(sample: &[String], r: &mut Random) -> String {
    let mut text = sample[r.below(sample.len())].clone();
    for _ in 0..1 + r.below(3) {
        let boundaries: Vec<usize> = text.char_indices().map(|(n, _)| n).chain([text.len()]).collect();
        let at = boundaries[r.below(boundaries.len())];
        match r.below(5) {
            0 => text.insert_str(
                at,
                r.pick(&[
                    "'", "\"", "$", "`", "(", ")", "{", "}", ";", "&", "|", "\\", "\n", "#", " ", "$(", "<<", "=", "*",
                    "[", "]",
                ]),
            ),
            1 if at < text.len() => drop(text.remove(at)),
            2 => {
                let other = &sample[r.below(sample.len())];
                text = format!("{text}{}{other}", r.pick(&["; ", " && ", " | ", "\n", " || "]));
            }
            3 => text = format!("alpha $({text}) \"`beta`\""),
            _ => text = format!("{{ {text}\n}}; gamma done"),
        }
    }
    text
}
