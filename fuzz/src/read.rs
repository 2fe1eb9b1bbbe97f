//! Reading never panics, and what it finds lies in the text.
#![no_main]

use countersign_policy::{ParseContext, read_text};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let plan = read_text(text, &ParseContext { cwd: "/work/proj", home: "/home/dev", environment: &|_| false });
    for occurrence in &plan.occurrences {
        assert!(occurrence.span.start <= occurrence.span.end && occurrence.span.end <= text.len());
        assert!(!occurrence.verb.is_empty() || occurrence.words.is_empty());
    }
});
