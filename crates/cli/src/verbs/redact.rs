//! `csn redact`: the daemon's redaction as a filter. It needs no daemon and no home.

use crate::{UsageError, args::RedactArgs, exit, render::text::count};
use countersign_model::{Digest, RedactionRule};
use countersign_redact::{Finding, KnownSecrets, Mask, Scrubber, UserRules, examples::expand};
use countersign_store::{Config, clock};
use rustix::event::{PollFd, PollFlags, poll};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    process::ExitCode,
    sync::Arc,
};

/// After this long without input, everything that is not secret is printed.
const IDLE_TIMEOUT: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

pub(crate) fn redact(args: &RedactArgs) -> anyhow::Result<ExitCode> {
    let config = if args.no_config { Config::default() } else { Config::load()? };
    let own_rules = config.redaction();
    let user = UserRules::new(&own_rules).map_err(|f| config.redaction_fault(f.index, f.message))?;
    if args.rules {
        return list_rules(&own_rules, args.json);
    }
    if args.examples {
        return print_examples();
    }
    countersign_redact::set_user_rules(user);
    match args.words.split_first() {
        Some((word, [])) if word == "test" => return test_rules(&own_rules),
        Some((word, _)) if word == "test" => {
            return Err(UsageError("`csn redact test` takes no file: run it alone".into()).into());
        }
        _ => {}
    }
    let env: Vec<(String, String)> =
        std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect();
    let known = KnownSecrets::from_env(env.iter().map(|(k, v)| (k.as_str(), v.as_str())));
    // The key differs in each run, so the same secret gets another placeholder each time.
    let key = Digest::sha256(&[clock::now().to_string().as_bytes(), &std::process::id().to_le_bytes()]);
    let mask = Arc::new(Mask::new(key, known));
    let mut report = RedactReport::default();
    if args.words.is_empty() {
        filter_stream(&mask, io::stdin(), &mut report, "-")?;
    }
    for path in &args.words {
        let file = File::open(path).map_err(|e| anyhow::anyhow!("{path}: {e}"))?;
        filter_stream(&mask, file, &mut report, path)?;
    }
    if args.report {
        report.print(args.json)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Where each rule matched. It never holds the secret itself.
#[derive(Default)]
struct RedactReport {
    places: BTreeMap<String, Vec<(String, u64)>>,
}

impl RedactReport {
    fn print(&self, json: bool) -> io::Result<()> {
        let mut out = io::stderr().lock();
        if json {
            let rules: BTreeMap<&str, Vec<_>> = self
                .places
                .iter()
                .map(|(rule, places)| {
                    let places = places.iter().map(|(file, line)| serde_json::json!({"file": file, "line": line}));
                    (rule.as_str(), places.collect())
                })
                .collect();
            return writeln!(out, "{}", serde_json::json!({"v": 1, "found": rules}));
        }
        let total: usize = self.places.values().map(Vec::len).sum();
        writeln!(out, "{} redacted", count(total as u64, "secret"))?;
        for (rule, places) in &self.places {
            let first: Vec<String> = places.iter().take(5).map(|(file, line)| format!("{file}:{line}")).collect();
            let more = if places.len() > first.len() { ", …" } else { "" };
            writeln!(out, "{:6}  {rule:24} {}{more}", places.len(), first.join(", "))?;
        }
        Ok(())
    }
}

/// Filters one stream from its first byte to its last.
struct StreamFilter<'a> {
    scrubber: Scrubber,
    /// How many lines were printed.
    lines: u64,
    name: &'a str,
}

impl StreamFilter<'_> {
    fn print_ready(&mut self, all: bool, report: &mut RedactReport) -> io::Result<()> {
        let mut out = io::stdout().lock();
        loop {
            let before = self.scrubber.emitted_bytes();
            let Some(chunk) = self.scrubber.take_chunk(all) else { break };
            let bytes = chunk.as_ref();
            let mut counted = 0;
            for Finding { rule, offset } in self.scrubber.take_findings() {
                let upto = usize::try_from(offset.saturating_sub(before)).unwrap_or(0).clamp(counted, bytes.len());
                self.lines += count_lines(&bytes[counted..upto]);
                counted = upto;
                report.places.entry(rule.into_owned()).or_default().push((self.name.to_owned(), self.lines + 1));
            }
            self.lines += count_lines(&bytes[counted..]);
            out.write_all(bytes)?;
            self.scrubber.recycle(chunk.into_inner());
        }
        out.flush()
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|b| **b == b'\n').count() as u64
}

fn filter_stream(
    mask: &Arc<Mask>,
    mut input: impl io::Read + AsFd,
    report: &mut RedactReport,
    name: &str,
) -> io::Result<()> {
    let mut filter = StreamFilter { scrubber: Scrubber::new(Arc::clone(mask)), lines: 0, name };
    loop {
        let quiet = {
            let mut fds = [PollFd::new(&input, PollFlags::IN)];
            matches!(poll(&mut fds, Some(&IDLE_TIMEOUT)), Ok(0))
        };
        if quiet {
            filter.scrubber.flush();
            filter.print_ready(true, report)?;
            // Then wait without a timeout.
            let _ = poll(&mut [PollFd::new(&input, PollFlags::IN)], None);
        }
        match input.by_ref().read(filter.scrubber.input_buffer()) {
            Ok(0) => break,
            Ok(n) => filter.scrubber.accept_input(n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        filter.print_ready(false, report)?;
    }
    filter.scrubber.finish();
    filter.print_ready(true, report)
}

fn list_rules(own: &[RedactionRule], json: bool) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let built_in = countersign_redact::built_in_rules().iter().map(|r| (r.id, r.about, "built in"));
    let own = own.iter().map(|r| (r.id.as_str(), r.about.as_str(), "config"));
    let by_hand = countersign_redact::CONTEXT_RULES.iter().map(|(id, about)| (*id, *about, "built in"));
    for (id, about, origin) in built_in.chain(by_hand).chain(own) {
        if json {
            writeln!(out, "{}", serde_json::json!({"id": id, "about": about, "origin": origin}))?;
        } else {
            writeln!(out, "{id:26} {about}{}", if origin == "config" { " (config)" } else { "" })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A seed that differs in each run.
fn seed() -> u64 {
    let now = clock::now().to_string();
    now.bytes().fold(0u64, |seed, b| seed.wrapping_mul(31).wrapping_add(b.into()))
}

/// Prints one generated example of every built-in rule.
fn print_examples() -> anyhow::Result<ExitCode> {
    let (mut out, seed) = (io::stdout().lock(), seed());
    for (n, rule) in countersign_redact::built_in_rules().iter().enumerate() {
        let example = expand(rule.matches[0], seed.wrapping_add(n as u64)).map_err(anyhow::Error::msg)?;
        writeln!(out, "{}\t{}", rule.id, example.text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How often each example is drawn. Rules tell random text from words by chance: one draw in hundreds looks like a word.
const DRAWS: u64 = 3;

/// Whether the rules do not find the secret of an example, or find one where there is none.
fn is_wrong(template: &str, should: bool, seed: u64) -> anyhow::Result<bool> {
    let example = expand(template, seed).map_err(anyhow::Error::msg)?;
    let clean = countersign_redact::text_by_shape(&example.text);
    let left = example.secrets.iter().any(|s| s.len() >= 8 && clean.as_str().contains(s.as_str()));
    let found = clean.as_str() != example.text;
    Ok(found != should || should && left)
}

/// Generates every example of every rule and checks that the rules find what they must and nothing else.
fn test_rules(own: &[RedactionRule]) -> anyhow::Result<ExitCode> {
    let built_in = countersign_redact::built_in_rules().iter().map(|r| (r.id, r.matches.to_vec(), r.misses.to_vec()));
    let own = own.iter().map(|r| {
        (r.id.as_str(), r.matches.iter().map(String::as_str).collect(), r.misses.iter().map(String::as_str).collect())
    });
    let (mut rules, mut examples, mut wrong) = (0, 0, 0);
    let seed = seed();
    for (id, matches, misses) in built_in.chain(own) {
        rules += 1;
        let all = matches.iter().map(|t| (t, true)).chain(misses.iter().map(|t| (t, false)));
        for (template, should) in all {
            examples += 1;
            let mut always_wrong = true;
            for draw in 0..DRAWS {
                always_wrong &= is_wrong(template, should, seed.wrapping_add(draw))?;
            }
            if always_wrong {
                wrong += 1;
                let what = if should { "is not redacted" } else { "is redacted and must not be" };
                eprintln!("{id}: an example of {template} {what}");
            }
        }
    }
    println!("{}, {}, {wrong} wrong", count(rules, "rule"), count(examples, "example"));
    Ok(ExitCode::from(if wrong > 0 { exit::OURS } else { 0 }))
}
