//! Embedded programs, and options by their grammars: no input panics, and a command that plainly runs another is
//! never taken for reading.
#![no_main]

use countersign_model::{Facts, Grants, Verdict};
use countersign_policy::{CheckedRules, JudgeContext, ParseContext, judge, read_argv};

libfuzzer_sys::fuzz_target!(|input: (u8, Vec<String>)| {
    let (program, words) = input;
    let names = [
        "sed", "awk", "jq", "find", "git", "sort", "rg", "yq", "xargs", "env", "tar", "sudo", "bash", "test", "date",
        "rm",
    ];
    let mut argv = vec![names[usize::from(program) % names.len()].to_owned()];
    argv.extend(words.into_iter().take(12).filter(|w| !w.contains('\0')));
    let plan = read_argv(&argv, &ParseContext { cwd: "/work/proj", home: "/home/dev", environment: &|_| false });
    let context = JudgeContext::personal("/home/dev", vec!["/work/proj".to_owned()]);
    let assessment = judge(&plan, &Facts::none("/work/proj"), &context, &CheckedRules::default(), &Grants::default());
    if let Verdict::Allow { .. } = assessment.verdict {
        let has_word = |w: &str| argv.iter().any(|a| a == w);
        assert!(!(argv[0] == "find" && (has_word("-delete") && argv.get(1).map(String::as_str) == Some("-delete"))));
        assert!(!(argv[0] == "sed" && argv.get(1).is_some_and(|a| a.starts_with("-i"))));
        assert!(argv[0] != "rm" && argv[0] != "sudo");
    }
});
