//! The differential proof for programs: awk, sed, jq, find and xargs run what the gate lets through, in every
//! implementation at hand, and leave no mark: nothing is run, written, or read beside what they were given. The
//! programs are made of parts that would leave one and of everything that may hide such a part, put together at random.
//!
//! `CSN_PROGRAMS` says how many runs, `CSN_SEED` repeats them.

use crate::{
    confined::{Case, Confined, need},
    generate::Random,
    support::{assess, word},
};
use std::collections::HashSet;

/// How one language is tried: the words before its program and behind it, and the parts to make programs of.
struct Language {
    name: &'static str,
    /// What the gate is asked about, and what runs then.
    commands: &'static [(&'static str, &'static [&'static str])],
    behind: &'static str,
    /// Put in front of some programs, so that marks need no quotes.
    prefix: &'static str,
    /// Parts that leave a mark where they are code.
    marks: &'static [&'static str],
    /// Whole programs that leave one: the proof must see them.
    control: &'static [&'static str],
    /// What comes before and behind a mark, to hide it.
    openers: &'static [&'static str],
    closers: &'static [&'static str],
    /// What is put anywhere.
    noise: &'static [&'static str],
    /// Ordinary parts.
    plain: &'static [&'static str],
}

const AWKS: &[&str] = &["mawk", "gawk", "original-awk", "busybox awk"];
const SEDS: &[&str] = &["sed", "busybox sed", "sed --posix", "sed -E", "busybox sed -n"];

const AWK: Language = Language {
    name: "awk",
    commands: &[("awk", AWKS), ("gawk", AWKS), ("mawk", AWKS)],
    behind: "a.txt",
    prefix: "BEGIN{m=\"marker\";s=\"../secret\";o=\"out\"}",
    marks: &[
        "system(m)",
        "system(\"marker\")",
        "print 1 | m",
        "print|\"marker\"",
        "m|getline",
        "print > o",
        "print 1 >> \"out\"",
        "printf(1) > o",
        "> o",
        "> \"out\"",
        "< s",
        "< \"../secret\"; print",
        "getline<s;print",
        "getline x <s;print x",
        "getline x[\"}\"] < s; print x[\"}\"]",
        "getline < \"../secret\"; print",
        "print ENVIRON[\"CANARY\"]",
        "ENVIRON[\"CANARY\"]",
        "ARGV[1]=s",
        "{system(m)}",
        "BEGIN{system(m)}",
        "};{print > o}",
    ],
    control: &[
        "1system(\"marker\")",
        "{x=$1system(\"marker\")}",
        "BEGIN{x=0getline < \"../secret\"; print}",
        "BEGIN{print 1ENVIRON[\"CANARY\"]}",
        "{print \"x\", # c\n\"y\" > \"out\"}",
        "BEGIN{getline x[\"}\"] < \"../secret\"; print x[\"}\"]}",
        "BEGIN{getline l \\\n< \"../secret\"; print l}",
        "BEGIN{\"marker\" | getline}",
        "BEGIN{print a ?\n1 :\n2 > \"out\"}",
    ],
    openers: &[
        "\"",
        "/",
        "#",
        "/[",
        "/[[:",
        "/[^]",
        "/[]",
        "x /",
        "1 /",
        "(x) /",
        "$1 /",
        "length /",
        "a[1] /",
        "x++ /",
        "/\\",
        "\"\\",
        "# c\n",
        "1",
        "0x1",
        "1e5",
        "1.",
        ".5",
        "$1",
        "x=",
        "print 1,",
        "print 1, # c\n",
        "print 1 \\\n",
        "print (1)",
        "print (1",
        "print 1\n",
        "getline",
        "getline x ",
        "getline x[\"}\"] ",
        "x ?",
        "x ? 1 :",
        "1 ~ /",
        "if (1) /",
        "exit /",
        "return /",
        "in /",
        "! /",
        "~ /\"/; ",
        "\"/\" ",
        "/\"/;",
        "$",
        "f(",
        "{",
        "}",
        "(",
        "++ /",
        "print a[",
        "print x ? y : ",
        "print \"\\\\\" ",
        "\"表\\\"",
        "/表\\/",
    ],
    closers: &[
        "\"", "/", "\n", "]/", ":]]/", "/ 2", "\"/", "/\"", "#\"", "#/", "\\\n", ";", "}", ")", "#\"/", "/;#\"",
        "\\\"", "\\/", "]", " #", ":", ",", "/ \"",
    ],
    noise: &[
        "\\\n",
        "\r",
        "\\\r\n",
        "\n",
        "#",
        "# c\n",
        "#\\\n",
        "\"",
        "\\\"",
        "/",
        "\\/",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        ";",
        "1",
        "0x",
        "1e",
        ".",
        "$",
        "++",
        "--",
        "?",
        ":",
        ",",
        "&&",
        "||",
        "!",
        "~",
        "=",
        " in ",
        " print ",
        " getline ",
        "<",
        ">",
        "|",
        " ",
        "\t",
        "\\",
        "'",
        "é",
        "表",
        " length ",
        "if(1)",
        "else ",
        " return ",
        "x",
        "_",
        "@",
        "[[:",
        ":]",
        "-",
        "+",
        "*",
        "%",
        "^",
        "\u{a0}",
        "\u{b}",
        "\u{c}",
        "/=",
        "printf",
        "function f(a)",
        "BEGIN",
        "END",
        "do ",
        "while(0)",
        "for(;0;)",
        "delete x",
        "next",
        "\\",
        "\\\\",
        "::",
        "..",
        "1e+",
        "0X1p",
        "nan",
        "inf",
    ],
    plain: &[
        "{x=1}",
        "/a/",
        "$1 > 5",
        "{print $1}",
        "x=1;",
        "BEGIN{",
        "END{",
        "{",
        "}",
        ";",
        "\n",
        "1",
        "x",
        "print",
        "print 1",
        "if (x)",
        "{n++}",
        "\"a\"",
        "{ x = $1 / 2 }",
        "{ print ($1 > 2) }",
        "function f(a) { return a }",
        "$1 ~ /b/",
        "{ gsub(/a/, \"b\") }",
        "{getline; print}",
        "while ((getline l) > 0) x",
    ],
};

const SED: Language = Language {
    name: "sed",
    commands: &[
        ("sed", SEDS),
        ("sed -n", &["sed -n", "busybox sed -n", "sed -n --posix"]),
        ("sed -E", &["sed -E", "busybox sed -E"]),
    ],
    behind: "a.txt",
    prefix: "",
    marks: &[
        "w out",
        "1w out",
        "$w out",
        "e marker",
        "1e marker",
        "r ../secret",
        "1r ../secret",
        "R ../secret",
        "W out",
        "s/a/b/w out",
        "s/.*/marker/e",
        "s/1/b/pw out",
        "/a/w out",
        "{w out",
        "w out\n}",
    ],
    control: &["#\rw out", "p;w out", "1e marker", "1r ../secret", "s/.*/marker/e", "a\\ \np\nw out", "\\\np;w out"],
    openers: &[
        "#",
        "# ",
        "#\r",
        "# c\\\n",
        "a\\\n",
        "a\\",
        "a ",
        "a",
        "i\\\n",
        "i\\ \n",
        "c\\\n",
        "c ",
        "a x\\\\\n",
        "a x\\\n",
        "s/",
        "s/[",
        "s/[]",
        "s/[^]",
        "s/[[:",
        "s/[\\]",
        "s/\\",
        "s/a/",
        "s/a/\\",
        "s/a/b\\\n",
        "s,",
        "s,a,",
        "s|[",
        "s/a/b/",
        "s/a/b/g",
        "s/a/b/\r",
        "/",
        "/[",
        "\\,",
        "\\|",
        "\\\n",
        "\\a",
        "y/",
        "y/a/",
        "y/a/b/",
        ":",
        ":a",
        ":a ",
        ":a;",
        "b",
        "b ",
        "ba;",
        "bx}",
        "t",
        "T",
        "}",
        "{",
        "{p}",
        "p;",
        "p",
        "p ",
        "1",
        "1,",
        "1!",
        "$!{",
        "q",
        "q 5",
        "l ",
        "v ",
        "=",
        "n;",
        "\\\np",
        "s/表\\/",
        "s;",
        "s;a;b;",
        "s/a/b/;",
        "0,/",
        "/a/I",
        "/a/,",
        "+1",
        "~2",
        "s/a/b/ ",
        "F;",
        "z;",
    ],
    closers: &[
        "", "/", "]/", ":]]/", "/x/", "]/x/", "\n", "\\\n", ";", "}", "\n}", ",", ",x,", "\r", "\\", "/b/", "/\n",
        "|x|", ";x;",
    ],
    noise: &[
        "\\\n", "\r", "\n", "\r\n", "\\\r\n", "#", ";", "{", "}", "!", " ", "\t", "\\", "\\\\", "/", "[", "]", "[[:",
        ":]", ",", "|", "1", "$", "s", "y", "a", "i\\", "c\\\n", "b", "t", ":x", "p", "d", "n", "g", "I", "M", "e",
        "w", "\u{b}", "\u{c}", "é", "\u{a0}", "&", "\\n", "\\/", "~", "+", "0", "^", "*", "(", ")", "=", "l", "q", "z",
        "D", "v",
    ],
    plain: &[
        "p", "1p", "$!d", "s/a/b/", "s/a/b/g", "y/ab/ba/", "/a/p", "1,2d", "n", "=", "h;G", ":l", "N;P;D", "{p}",
        "1!G", "$p\n", "q",
    ],
};

const JQ: Language = Language {
    name: "jq",
    commands: &[("jq", &["jq", "jq -r"]), ("jq -r", &["jq -r"]), ("jq -n", &["jq -n"])],
    behind: "b.json",
    prefix: "",
    marks: &[
        "env.CANARY",
        "$ENV.CANARY",
        "env",
        "$ENV",
        "env|.CANARY",
        "$ ENV.CANARY",
        "(env)",
        "[env]",
        "input_filename|env",
    ],
    control: &["env.CANARY", "$ENV", "\"\\(env)\"", "{a:env}", "[$ENV.CANARY]"],
    openers: &[
        "\"",
        "\"\\(",
        "#",
        "# \\\n",
        "@sh \"\\(",
        ".",
        "..",
        ".a.",
        "1.",
        ".[",
        ".[\"",
        "{",
        "{a:",
        "[",
        "(",
        "if . then ",
        "as $x|",
        "try ",
        "\"\\",
        "\"\\\\",
        "\"\\\\\\(",
        "def f:",
        ".a as [$x]|",
        "reduce .a as $x(0;",
        "1 as $x|",
        "?//",
        "-",
        "$__loc__|",
        "label $f|",
        ".a?//",
        ".a|=",
    ],
    closers: &["\"", ")\"", "\n", ")", "]", "}", " end", ";.", ";f", "|.", "\\\"", "#", "\\n\"", ",1", " // 1"],
    noise: &[
        "\\", "\\\n", "\r", "\n", "#", "\"", "\\(", ")", "(", "[", "]", "{", "}", "|", ",", ".", "$", "@", ":", "::",
        ";", " ", "\t", "?", "1", "1e5", "x", "_", "é", "-", "/", "=",
    ],
    plain: &[
        ".",
        ".a",
        ".a[]",
        "length",
        "keys",
        "1",
        "\"x\"",
        "map(.)",
        "|",
        ",",
        "select(.)",
        "tojson",
        "@json",
        ". as $x|$x",
    ],
};

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn pick<'a>(random: &mut Random, from: &[&'a str]) -> &'a str {
    from[random.below(from.len())]
}

fn place(text: &str, random: &mut Random) -> usize {
    let all: Vec<usize> = text.char_indices().map(|(n, _)| n).chain([text.len()]).collect();
    all[random.below(all.len())]
}

impl Language {
    fn program(&self, random: &mut Random) -> String {
        let mut text = String::new();
        if random.below(3) == 0 {
            text.push_str(pick(random, self.control));
        } else {
            for _ in 0..1 + random.below(3) {
                match random.below(5) {
                    0 => text.push_str(pick(random, self.plain)),
                    1 => {
                        text.push_str(pick(random, self.openers));
                        text.push_str(pick(random, self.closers));
                    }
                    _ => {
                        text.push_str(pick(random, self.openers));
                        text.push_str(pick(random, self.marks));
                        text.push_str(pick(random, self.closers));
                    }
                }
                text.push_str(pick(random, &["", "", ";", "\n", " ", "}", "{"]));
            }
        }
        if self.name == "awk" && random.below(2) == 0 {
            text = format!("{}{{{text}}}", pick(random, &["", "BEGIN", "END", "1"]));
        }
        for _ in 0..random.below(4) {
            let at = place(&text, random);
            text.insert_str(at, pick(random, self.noise));
        }
        let at = place(&text, random);
        if random.below(8) == 0 && at < text.len() {
            text.remove(at);
        }
        if random.below(2) == 0 {
            text.insert_str(0, self.prefix);
        }
        text
    }

    /// Programs that the gate lets through, as many as asked for.
    fn allowed(&self, random: &mut Random, count: usize, cwd: &str) -> (Vec<(String, Case)>, usize) {
        let (mut cases, mut seen, mut tried) = (Vec::new(), HashSet::new(), 0);
        while cases.len() < count && tried < count * 400 {
            tried += 1;
            let program = self.program(random);
            let (typed, programs) = self.commands[random.below(self.commands.len())];
            // What leaves no mark in any reading proves nothing.
            if !self.marks.iter().any(|m| program.contains(m)) || !seen.insert(program.clone()) {
                continue;
            }
            let command = format!("{typed} {} {}", quoted(&program), self.behind);
            if word(&assess(&command, cwd, &[cwd], &[], None)) == "allow" {
                cases.push((command, Case { programs, words: vec![program, self.behind.to_owned()] }));
            }
        }
        (cases, tried)
    }
}

fn seed() -> u64 {
    std::env::var("CSN_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or_else(|| {
        use std::hash::{BuildHasher as _, Hasher as _};
        std::collections::hash_map::RandomState::new().build_hasher().finish() >> 16
    })
}

/// How many cases of one language to run; `share` of a hundred of what the environment asks for.
fn count(share: usize) -> usize {
    std::env::var("CSN_PROGRAMS").ok().and_then(|n| n.parse().ok()).unwrap_or(2400usize) * share / 100
}

/// Runs what `allowed` makes, in parts, so that a long run needs no more memory than a short one and ends at its first
/// finding.
fn no_marks(
    name: &str,
    confined: &Confined,
    share: usize,
    mut allowed: impl FnMut(&mut Random, usize) -> (Vec<(String, Case)>, usize),
) {
    let seed = seed();
    println!("CSN_SEED={seed}");
    let (count, mut random, mut run, mut tried) = (count(share), Random::new(seed), 0, 0);
    while run < count {
        let wanted = (count - run).min(4000);
        let (cases, made) = allowed(&mut random, wanted);
        assert!(cases.len() * 10 >= wanted * 9, "CSN_SEED={seed}: too few are allowed: {} of {made}", cases.len());
        let (commands, cases): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
        let marks = confined.run(&cases);
        let wrong: Vec<String> =
            marks.iter().take(8).map(|m| format!("{:?}\n  {} {}", commands[m.case], m.program, m.what)).collect();
        assert!(wrong.is_empty(), "CSN_SEED={seed}\n{}", wrong.join("\n"));
        run += wanted;
        tried += made;
    }
    println!("{name}: {tried} programs, {run} of them allowed and run");
}

fn prove(language: &Language, share: usize) {
    need(&["gawk", "mawk", "original-awk", "busybox", "sed", "jq"]);
    let confined = Confined::new(&["marker"], "");
    // The proof sees what it looks for: each of these leaves a mark somewhere, and none is allowed.
    let programs = language.commands[0].1;
    let control: Vec<Case> = language
        .control
        .iter()
        .map(|p| Case { programs, words: vec![(*p).to_owned(), language.behind.to_owned()] })
        .collect();
    let marked: HashSet<usize> = confined.run(&control).into_iter().map(|m| m.case).collect();
    for (n, program) in language.control.iter().enumerate() {
        assert!(marked.contains(&n), "{}: {program:?} leaves no mark, so the proof is blind", language.name);
        let command = format!("{} {} {}", language.commands[0].0, quoted(program), language.behind);
        let answer = assess(&command, &confined.cwd(), &[&confined.cwd()], &[], None);
        assert_ne!(word(&answer), "allow", "{command:?}");
    }
    no_marks(language.name, &confined, share, |random, wanted| language.allowed(random, wanted, &confined.cwd()));
}

/// A program that takes words: those that matter to it, put together at random.
struct Tool {
    programs: &'static [&'static str],
    typed: &'static str,
    words: &'static [&'static str],
    /// Runs of words that leave a mark.
    control: &'static [&'static str],
}

const FIND: Tool = Tool {
    typed: "find",
    programs: &["find", "busybox find"],
    words: &[
        ".",
        "sub",
        "a.txt",
        "-name",
        "*.txt",
        "-type",
        "f",
        "-exec",
        "-execdir",
        "-ok",
        "-okdir",
        "echo",
        "cat",
        "head",
        "wc -l",
        "marker",
        "{}",
        ";",
        "+",
        "{} +",
        "{} ;",
        "-exec echo {} ;",
        "-exec cat {} +",
        "-exec marker {} ;",
        "-exec marker",
        "-delete",
        "-fprint out",
        "-fprint",
        "out",
        "-fls out",
        "-fprintf out %p",
        "-fprint0 out",
        "-print",
        "-print0",
        "-ls",
        "-prune",
        "-quit",
        "-o",
        "-a",
        "!",
        "(",
        ")",
        ",",
        "-maxdepth 1",
        "-mindepth 1",
        "-newer a.txt",
        "-newermt 2020-01-01",
        "-size +0",
        "-D",
        "exec",
        "-O2",
        "-H",
        "-L",
        "-P",
        "-true",
        "-false",
        "-regex",
        ".*",
        "-path",
        "-perm",
        "-0644",
        "-empty",
        "-depth",
        "-d",
        "-printf",
        "%p",
        "-files0-from",
        "-",
        "--",
        "-context",
        "-samefile",
        "-user",
        "0",
        "-inum",
        "-iname -delete",
        "-name -exec",
    ],
    control: &[
        ". -exec echo {} a + -exec marker {} ;",
        ". -exec marker {} ;",
        ". -name a.txt -delete",
        ". -fprint out",
        "-D exec . -exec marker {} +",
    ],
};

const XARGS: Tool = Tool {
    typed: "xargs",
    programs: &["xargs", "busybox xargs"],
    words: &[
        "-0",
        "-r",
        "-t",
        "-x",
        "-n",
        "1",
        "-n1",
        "-L",
        "-l",
        "-l1",
        "-L1",
        "-I",
        "{}",
        "-I{}",
        "-i",
        "-i{}",
        "-iecho",
        "-Iecho",
        "-I echo",
        "-E",
        "x",
        "-e",
        "-ex",
        "-eecho",
        "-d",
        "-P",
        "2",
        "-s",
        "1000",
        "-a",
        "a.txt",
        "echo",
        "echo",
        "printf",
        "%s",
        "marker",
        "--",
        "--replace",
        "--replace=echo",
        "--max-args=1",
        "--max-lines",
        "--max-lines=1",
        "--null",
        "--eof",
        "--eof=x",
        "--arg-file=a.txt",
        "--verbose",
        "--no-run-if-empty",
        "-rt",
        "-0r",
        "-rn1",
        "-tI{}",
        "true",
        "sh",
        "-c",
        "--max-procs",
        "--delimiter=x",
        "-p",
        "-o",
        "--interactive",
    ],
    control: &["marker", "-I{} marker {}", "-e marker", "-l marker", "-i marker", "-n1 -- marker"],
};

impl Tool {
    fn words(&self, line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn command(&self, words: &[String]) -> String {
        let quoted: Vec<String> = words.iter().map(|w| quoted(w)).collect();
        format!("{} {}", self.typed, quoted.join(" "))
    }

    fn allowed(&self, random: &mut Random, count: usize, cwd: &str) -> (Vec<(String, Case)>, usize) {
        let (mut cases, mut seen, mut tried) = (Vec::new(), HashSet::new(), 0);
        while cases.len() < count && tried < count * 2000 {
            tried += 1;
            let line: Vec<&str> = (0..2 + random.below(8)).map(|_| pick(random, self.words)).collect();
            let words = self.words(&line.join(" "));
            let command = self.command(&words);
            if !seen.insert(command.clone()) {
                continue;
            }
            if word(&assess(&command, cwd, &[cwd], &[], None)) == "allow" {
                cases.push((command, Case { programs: self.programs, words }));
            }
        }
        (cases, tried)
    }

    fn prove(&self, share: usize) {
        need(&["find", "xargs", "busybox"]);
        let confined = Confined::new(&["marker"], "");
        let case = |line: &&str| Case { programs: self.programs, words: self.words(line) };
        let marked: HashSet<usize> =
            confined.run(&self.control.iter().map(case).collect::<Vec<_>>()).into_iter().map(|m| m.case).collect();
        for (n, line) in self.control.iter().enumerate() {
            assert!(marked.contains(&n), "{} {line} leaves no mark, so the proof is blind", self.typed);
            let command = self.command(&self.words(line));
            let answer = assess(&command, &confined.cwd(), &[&confined.cwd()], &[], None);
            assert_ne!(word(&answer), "allow", "{command}");
        }
        no_marks(self.typed, &confined, share, |random, wanted| self.allowed(random, wanted, &confined.cwd()));
    }
}

#[test]
fn find_expressions_that_the_gate_allows_leave_no_mark_in_any_find() {
    FIND.prove(10);
}

#[test]
fn xargs_that_the_gate_allows_runs_nothing_else() {
    XARGS.prove(10);
}

#[test]
fn awk_programs_that_the_gate_allows_leave_no_mark_in_any_awk() {
    prove(&AWK, 40);
}

#[test]
fn sed_scripts_that_the_gate_allows_leave_no_mark_in_any_sed() {
    prove(&SED, 30);
}

#[test]
fn jq_filters_that_the_gate_allows_leave_no_mark() {
    prove(&JQ, 10);
}
