//! The differential test for programs: awk, sed, jq, find, xargs, ps and git run what the gate allows, in every
//! installed implementation, and leave no mark: they run, write and read nothing beyond their input. The programs are
//! random combinations of parts that would leave a mark and parts that may hide one.
//!
//! `CSN_PROGRAMS` sets the number of runs, `CSN_SEED` repeats them.

use crate::{
    confined::{Case, ProgramSandbox, require_programs},
    generate::{Random, seed},
    support::{assess, verdict_word},
};
use std::collections::HashSet;

/// How one language is tested: the words around its program, and the parts of generated programs.
struct Language {
    name: &'static str,
    /// The command that the gate judges, and the programs that run.
    commands: &'static [(&'static str, &'static [&'static str])],
    behind: &'static str,
    /// Precedes some programs, so that marks need no quotes.
    prefix: &'static str,
    /// Parts that leave a mark if they are code.
    marks: &'static [&'static str],
    /// Whole programs that leave a mark, which the test must detect.
    control: &'static [&'static str],
    /// Text before and behind a mark, to hide it.
    openers: &'static [&'static str],
    closers: &'static [&'static str],
    /// Text that is inserted anywhere.
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

    /// Generates `count` programs that the gate allows.
    fn allowed(&self, random: &mut Random, count: usize, cwd: &str) -> (Vec<(String, Case)>, usize) {
        let (mut cases, mut seen, mut tried) = (Vec::new(), HashSet::new(), 0);
        while cases.len() < count && tried < count * 400 {
            tried += 1;
            let program = self.program(random);
            let (typed, programs) = self.commands[random.below(self.commands.len())];
            // A program without a mark in any reading proves nothing.
            if !self.marks.iter().any(|m| program.contains(m)) || !seen.insert(program.clone()) {
                continue;
            }
            let command = format!("{typed} {} {}", quoted(&program), self.behind);
            if verdict_word(&assess(&command, cwd, &[cwd], &[], None)) == "allow" {
                cases.push((command, Case { programs, words: vec![program, self.behind.to_owned()] }));
            }
        }
        (cases, tried)
    }
}

/// The number of cases for one language: `share` percent of `CSN_PROGRAMS`.
fn count(share: usize) -> usize {
    std::env::var("CSN_PROGRAMS").ok().and_then(|n| n.parse().ok()).unwrap_or(2400usize) * share / 100
}

/// Runs what `allowed` generates, in batches, so that a long run needs no more memory than a short one and stops at
/// its first finding.
fn assert_no_marks(
    name: &str,
    sandbox: &ProgramSandbox,
    share: usize,
    mut allowed: impl FnMut(&mut Random, usize) -> (Vec<(String, Case)>, usize),
) {
    let seed = seed();
    let (count, mut random, mut run, mut tried) = (count(share), Random::new(seed), 0, 0);
    while run < count {
        let wanted = (count - run).min(4000);
        let (cases, generated) = allowed(&mut random, wanted);
        assert!(cases.len() * 10 >= wanted * 9, "CSN_SEED={seed}: too few are allowed: {} of {generated}", cases.len());
        let (commands, cases): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
        let marks = sandbox.run(&cases);
        let wrong: Vec<String> =
            marks.iter().take(8).map(|m| format!("{:?}\n  {} {}", commands[m.case], m.program, m.what)).collect();
        assert!(wrong.is_empty(), "CSN_SEED={seed}\n{}", wrong.join("\n"));
        run += wanted;
        tried += generated;
    }
    println!("{name}: {tried} programs, {run} of them allowed and run");
}

fn prove_language(language: &Language, share: usize) {
    require_programs(&["gawk", "mawk", "original-awk", "busybox", "sed", "jq"]);
    let sandbox = ProgramSandbox::new(&["marker"], "");
    // The test must detect these: each leaves a mark in some implementation, and none is allowed.
    let programs = language.commands[0].1;
    let control: Vec<Case> = language
        .control
        .iter()
        .map(|p| Case { programs, words: vec![(*p).to_owned(), language.behind.to_owned()] })
        .collect();
    let marked: HashSet<usize> = sandbox.run(&control).into_iter().map(|m| m.case).collect();
    for (n, program) in language.control.iter().enumerate() {
        assert!(marked.contains(&n), "{}: {program:?} leaves no mark, so the proof is blind", language.name);
        let command = format!("{} {} {}", language.commands[0].0, quoted(program), language.behind);
        let answer = assess(&command, &sandbox.cwd(), &[&sandbox.cwd()], &[], None);
        assert_ne!(verdict_word(&answer), "allow", "{command:?}");
    }
    assert_no_marks(language.name, &sandbox, share, |random, wanted| language.allowed(random, wanted, &sandbox.cwd()));
}

/// A program that takes words, tested with random combinations of them.
struct Tool {
    programs: &'static [&'static str],
    typed: &'static str,
    words: &'static [&'static str],
    /// Command lines that leave a mark.
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
        "cat",
        "head",
        "A",
        "-IA",
    ],
    control: &[
        "marker",
        "-I{} marker {}",
        "-e marker",
        "-l marker",
        "-i marker",
        "-n1 -- marker",
        "-I A -I B cat B",
        "-I A -n 2 cat a.txt",
        "-n 1 cat a.txt",
    ],
};

/// Every process here has the canary in its environment.
const PS: Tool = Tool {
    typed: "ps",
    programs: &["env COLUMNS=99999 ps", "busybox ps"],
    words: &[
        "a",
        "u",
        "x",
        "e",
        "w",
        "f",
        "l",
        "j",
        "v",
        "aux",
        "ax",
        "axe",
        "eww",
        "-e",
        "-A",
        "-a",
        "-x",
        "-f",
        "-l",
        "-u",
        "-U",
        "-p",
        "-C",
        "-t",
        "-g",
        "-G",
        "-o",
        "o",
        "O",
        "-O",
        "-s",
        "-N",
        "-T",
        "-L",
        "-w",
        "-ww",
        "-ax",
        "-ef",
        "-aux",
        "-eo",
        "axo",
        "-axo",
        "pid,args",
        "pid,comm",
        "args",
        "environ",
        "pid=,environ=",
        "root",
        "0",
        "1",
        "x",
        "user",
        "bash",
        "k",
        "-k",
        "pid",
        "--sort=pid",
        "--forest",
        "--format=pid,args",
        "--format",
        "--pid=1",
        "--pid",
        "--user",
        "--no-headers",
        "-c",
        "c",
        "-H",
        "-M",
        "-Z",
        "-q",
        "q",
        "p",
        "t",
        "-E",
        "-y",
        "-j",
        "s",
        "m",
        "-m",
        "g",
        "r",
        "S",
        "T",
        "-v",
        "-S",
        "h",
        "-h",
    ],
    control: &["axe", "auxe", "-axe", "-e -x", "-auxe", "-e e", "axeww", "-ef e", "ax e"],
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
            let mut words = match random.below(2) {
                0 => Vec::new(),
                _ => self.words(pick(random, self.control)),
            };
            for _ in 0..random.below(3) {
                if !words.is_empty() {
                    let at = random.below(words.len());
                    words.remove(at);
                }
            }
            for _ in 0..random.below(if words.is_empty() { 9 } else { 5 }) {
                let at = random.below(words.len() + 1);
                words.splice(at..at, self.words(pick(random, self.words)));
            }
            let command = self.command(&words);
            if !seen.insert(command.clone()) {
                continue;
            }
            if verdict_word(&assess(&command, cwd, &[cwd], &[], None)) == "allow" {
                cases.push((command, Case { programs: self.programs, words }));
            }
        }
        (cases, tried)
    }

    fn prove(&self, share: usize) {
        require_programs(&["find", "xargs", "ps", "busybox"]);
        let sandbox = ProgramSandbox::new(&["marker"], "");
        let case = |line: &&str| Case { programs: self.programs, words: self.words(line) };
        let marked: HashSet<usize> =
            sandbox.run(&self.control.iter().map(case).collect::<Vec<_>>()).into_iter().map(|m| m.case).collect();
        for (n, line) in self.control.iter().enumerate() {
            assert!(marked.contains(&n), "{} {line} leaves no mark, so the proof is blind", self.typed);
            let command = self.command(&self.words(line));
            let answer = assess(&command, &sandbox.cwd(), &[&sandbox.cwd()], &[], None);
            assert_ne!(verdict_word(&answer), "allow", "{command}");
        }
        assert_no_marks(self.typed, &sandbox, share, |random, wanted| self.allowed(random, wanted, &sandbox.cwd()));
    }
}

#[test]
fn find_expressions_that_the_gate_allows_leave_no_mark_in_any_find() {
    FIND.prove(10);
}

#[test]
fn ps_that_the_gate_allows_shows_no_environment() {
    PS.prove(10);
}

#[test]
fn xargs_that_the_gate_allows_runs_nothing_else() {
    XARGS.prove(10);
}

#[test]
fn awk_programs_that_the_gate_allows_leave_no_mark_in_any_awk() {
    prove_language(&AWK, 40);
}

#[test]
fn sed_scripts_that_the_gate_allows_leave_no_mark_in_any_sed() {
    prove_language(&SED, 30);
}

#[test]
fn jq_filters_that_the_gate_allows_leave_no_mark() {
    prove_language(&JQ, 10);
}

/// A repository whose configuration names a program wherever git can run one: signed and merged commits, a signed
/// tag, attributes for every driver.
const REPOSITORY: &str = r#"
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
git init -q -b main
printf '*.txt diff=mark merge=mark filter=mark\n' > .gitattributes
git add -A && git commit -qm one
git checkout -qb side && echo side >> a.txt && git commit -qam side
git checkout -q main && echo main >> a.txt && git commit -qam main
tree=$(git rev-parse main^{tree})
merge=$(git commit-tree "$tree" -p main -p side -m merge)
signed=$(printf 'tree %s\nparent %s\nauthor a <a@example.org> 1 +0000\ncommitter a <a@example.org> 1 +0000\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\nsigned\n' "$tree" "$merge" | git hash-object -t commit -w --stdin)
git update-ref refs/heads/main "$signed"
printf 'object %s\ntype commit\ntag v1\ntagger a <a@example.org> 1 +0000\n\nx\n-----BEGIN PGP SIGNATURE-----\n\nx\n-----END PGP SIGNATURE-----\n' "$signed" | git hash-object -t tag -w --stdin > tagged
git update-ref refs/tags/v1 "$(<tagged)" && rm tagged
git reset -q --hard main && git notes add -m note HEAD
echo stashed >> a.txt && git stash -q && echo dirty >> a.txt
git remote add origin ssh://nowhere.example/x
# Older versions sort and format by no signature.
if git for-each-ref --format='%(signature)' > /dev/null 2>&1; then : > "$HOME/signatures"; fi
for line in gpg.program=gpg-mark gpg.ssh.program=gpg-mark gpg.x509.program=gpg-mark core.pager=pager-mark pager.log=pager-mark core.editor=editor-mark \
  sequence.editor=editor-mark core.fsmonitor=fsmonitor-mark diff.external=external-mark diff.mark.textconv=textconv-mark \
  merge.mark.driver=merge-mark filter.mark.clean=clean-mark filter.mark.smudge=smudge-mark core.sshCommand=ssh-mark \
  credential.helper='!credential-mark' core.askPass=askpass-mark alias.lg='!alias-mark' pretty.mine=%G? diff.tool=mark \
  difftool.mark.cmd=tool-mark merge.tool=mark mergetool.mark.cmd=tool-mark core.alternateRefsCommand=alternate-mark \
  trailer.sign.command=trailer-mark uploadpack.packObjectsHook=pack-mark tar.mine.command=tar-mark interactive.diffFilter=filter-mark \
  core.hooksPath="$ROOT/bin" browser.mark.cmd=browser-mark web.browser=mark man.viewer=mark man.mark.cmd=man-mark; do
  git config "${line%%=*}" "${line#*=}"
done
"#;

const GIT: &[&str] = &["env GIT_OPTIONAL_LOCKS=0 git"];
const HELPERS: &[&str] = &[
    "gpg-mark",
    "pager-mark",
    "editor-mark",
    "fsmonitor-mark",
    "external-mark",
    "textconv-mark",
    "merge-mark",
    "clean-mark",
    "smudge-mark",
    "ssh-mark",
    "credential-mark",
    "askpass-mark",
    "alias-mark",
    "tool-mark",
    "alternate-mark",
    "trailer-mark",
    "pack-mark",
    "tar-mark",
    "filter-mark",
    "browser-mark",
    "man-mark",
    "post-index-change",
    "reference-transaction",
];
/// Programs that git runs because of the configuration, without an option that asks for it: to compare the working
/// tree it cleans files, asks a monitor and calls a hook; to show a difference it smudges and converts files, or runs
/// an external program. These helpers run confined.
const CONFIGURED: &[&str] =
    &["fsmonitor-mark", "external-mark", "textconv-mark", "clean-mark", "smudge-mark", "post-index-change"];
/// The programs that git may run for these words because of the configuration alone. `git help` shows a manual with the
/// configured viewer.
fn may_run(words: &[String], helper: &str) -> bool {
    CONFIGURED.contains(&helper) || helper == "man-mark" && words.get(1).is_some_and(|verb| verb == "help")
}

/// Every command in the table for git: its examples, and each verb with each of its options and several values.
fn git_commands() -> Vec<Vec<String>> {
    let table = include_str!("../../src/tables/phrases-git.table");
    let mut groups: std::collections::HashMap<&str, Vec<&str>> = std::collections::HashMap::new();
    let (mut verbs, mut group, mut options): (Vec<&str>, Option<&str>, Vec<&str>) = (Vec::new(), None, Vec::new());
    let mut commands = Vec::new();
    for line in table.lines().chain(["phrase end"]) {
        let (key, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        match key {
            "group" | "phrase" if !line.starts_with(' ') => {
                match group.take() {
                    Some(name) => drop(groups.insert(name, options.clone())),
                    None => verbs.iter().for_each(|verb| with_options(verb, &options, &mut commands)),
                }
                (verbs, options) = (Vec::new(), Vec::new());
                match key {
                    "group" => group = Some(rest),
                    _ => verbs = rest.split(" | ").filter(|v| *v != "end").collect(),
                }
            }
            "options" => options.extend(rest.split(' ')),
            "use" => rest.split(' ').for_each(|g| options.extend(groups[g].clone())),
            "yes" | "no" => commands.push(rest.split(' ').map(str::to_owned).collect()),
            _ => {}
        }
    }
    commands
}

fn with_options(verb: &str, options: &[&str], commands: &mut Vec<Vec<String>>) {
    const VALUES: &[&str] = &[
        "1",
        "x",
        "HEAD",
        "a.txt",
        "signature",
        "-*signature:grade",
        "%(signature)",
        "%(*signature)",
        "%h",
        "%G?",
        "%+GS",
        "mine",
        "remerge",
        "r",
        "separate",
        "diff",
        "format:%GS",
        "trailer:sign",
        "%(trailers)",
        "%(describe)",
        "all",
    ];
    let mut spelled: Vec<String> = vec![String::new()];
    for option in options {
        let (name, value) = option.split_once('=').map_or((*option, None), |(n, v)| (n.trim_end_matches('['), Some(v)));
        let long = name.starts_with("--");
        match value {
            Some(_) => {
                spelled.extend(VALUES.iter().map(|v| format!("{name}{}{v}", if long { "=" } else { "" })));
                spelled.push(name.to_owned());
            }
            None if long => spelled.push(name.to_owned()),
            None => spelled.extend(name[1..].chars().map(|c| format!("-{c}"))),
        }
    }
    // Adds options that run a program, besides those in the table.
    let known =
        ["--show-signature", "--ext-diff", "--textconv", "-Opager-mark", "--remerge-diff", "-v", "-p", "--verify"];
    spelled.extend(known.map(str::to_owned));
    for option in spelled {
        for operand in ["", "HEAD", "v1", "a.txt"] {
            let words = verb.split(' ').chain([option.as_str(), operand]).filter(|w| !w.is_empty());
            commands.push(words.map(str::to_owned).collect());
        }
    }
}

#[test]
fn git_commands_that_the_gate_allows_run_no_program_that_an_option_asks_for() {
    require_programs(&["git"]);
    let sandbox = ProgramSandbox::new(HELPERS, REPOSITORY);
    let case = |words: &[String]| Case { programs: GIT, words: words[1..].to_vec() };
    // The test must detect these.
    let control = [
        ("log --format=%G?", "gpg-mark"),
        ("log --show-signature", "gpg-mark"),
        ("branch --sort=signature", "gpg-mark"),
        ("for-each-ref --format=%(*signature)", "gpg-mark"),
        ("log --pretty=mine", "gpg-mark"),
        ("tag -v v1", "gpg-mark"),
        ("log --remerge-diff -p", "merge-mark"),
        ("grep -Opager-mark c", "pager-mark"),
        ("lg", "alias-mark"),
        ("config -e", "editor-mark"),
        ("ls-remote", "ssh-mark"),
        ("diff", "external-mark"),
        ("show -p HEAD~2", "textconv-mark"),
        ("status", "fsmonitor-mark"),
    ];
    let words = |line: &str| format!("git {line}").split(' ').map(str::to_owned).collect::<Vec<_>>();
    let marks = sandbox.run(&control.iter().map(|(line, _)| case(&words(line))).collect::<Vec<_>>());
    for (n, (line, helper)) in control.iter().enumerate() {
        if line.contains("signature") && !line.starts_with("log") && !sandbox.setup_created("signatures") {
            continue;
        }
        let ran = marks.iter().any(|m| m.case == n && m.what.contains(helper));
        assert!(ran, "git {line} does not run {helper}, so the proof is blind: {marks:?}");
    }
    let all = git_commands();
    let (mut random, wanted, cwd) = (Random::new(seed()), count(20), sandbox.cwd());
    let mut chosen: Vec<Vec<String>> = Vec::new();
    while chosen.len() < wanted.min(all.len()) {
        chosen.push(all[random.below(all.len())].clone());
    }
    // If the run asks for more commands than there are, all of them run.
    let chosen = if wanted >= all.len() { all } else { chosen };
    let command = |words: &[String]| words.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(" ");
    let generated = chosen.len();
    let allowed: Vec<Vec<String>> = chosen
        .into_iter()
        .filter(|w| verdict_word(&assess(&command(w), &cwd, &[&cwd], &[], None)) == "allow")
        .collect();
    let marks = sandbox.run(&allowed.iter().map(|w| case(w)).collect::<Vec<_>>());
    let mut helpers = std::collections::BTreeSet::new();
    let mut wrong = Vec::new();
    for mark in &marks {
        let ran: Option<Vec<&str>> = mark.what.strip_prefix("ran ").map(|r| r.split_whitespace().collect());
        if ran.as_ref().is_none_or(|r| r.iter().any(|h| !may_run(&allowed[mark.case], h))) {
            wrong.push(format!("{}\n  {}", allowed[mark.case].join(" "), mark.what));
        }
        helpers.extend(ran.unwrap_or_default().into_iter().map(str::to_owned));
    }
    println!("git: {generated} commands, {} of them allowed and run; helpers that ran: {helpers:?}", allowed.len());
    assert!(allowed.len() * 10 >= generated, "too few are allowed: {} of {generated}", allowed.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
