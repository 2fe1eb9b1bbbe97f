//! A stand-in for any program in the differential tests: records its words and its directory, prints one word and
//! exits with 0 or 1, depending on its words.

use std::{env, fs::OpenOptions, io::Write as _, process::ExitCode};

fn main() -> ExitCode {
    let words: Vec<String> = env::args_os().map(|w| w.to_string_lossy().into_owned()).collect();
    let (Ok(exe), Ok(cwd)) = (env::current_exe(), env::current_dir()) else { return ExitCode::from(3) };
    let note = serde_json::json!({
        "program": exe.file_name().map(|n| n.to_string_lossy()),
        "words": words,
        "cwd": cwd.to_string_lossy(),
    });
    let log = exe.ancestors().nth(2).map(|d| d.join("log"));
    let Some(Ok(mut log)) = log.map(|l| OpenOptions::new().append(true).create(true).open(l)) else {
        return ExitCode::from(4);
    };
    // A single write keeps the records of concurrent programs apart.
    if log.write_all(format!("{note}\n").as_bytes()).is_err() {
        return ExitCode::from(5);
    }
    println!("word");
    let sum: usize = words.iter().map(|w| w.len()).sum();
    ExitCode::from(u8::from(sum.is_multiple_of(3)))
}
