//! Programs with their own language, and options that run other programs: every known bypass, and everyday commands
//! that must run without approval.

use crate::support::{ROOT, assess, check, verdict_word};

fn answer(command: &str) -> &'static str {
    verdict_word(&assess(command, ROOT, &[ROOT], &[], None))
}

#[track_caller]
fn assert_all_need_approval(commands: &[&str]) {
    let allowed: Vec<_> = commands.iter().filter(|c| answer(c) == "allow").collect();
    assert!(allowed.is_empty(), "allowed: {allowed:#?}");
}

#[track_caller]
fn assert_all_allowed(commands: &[&str]) {
    let asked: Vec<_> = commands.iter().filter(|c| answer(c) != "allow").collect();
    assert!(asked.is_empty(), "not allowed: {asked:#?}");
}

#[test]
fn a_number_hides_no_word_behind_it() {
    for awk in ["awk", "gawk", "mawk", "nawk"] {
        for program in [
            r#"1system("id")"#,
            r#"{x=$1system("id")}"#,
            r#"BEGIN{x=0getline < "/etc/hosts"; print}"#,
            r#"BEGIN{print 1ENVIRON["HOME"]}"#,
            r#"BEGIN{x=0x1system("id")}"#,
            r#"BEGIN{x=1e5system("id")}"#,
            r#"BEGIN{x=1e+5system("id")}"#,
            r#"BEGIN{x=1.system("id")}"#,
            r#"BEGIN{x=1.esystem("id")}"#,
            r#"BEGIN{x=.5system("id")}"#,
            r#"BEGIN{x=1..5system("id")}"#,
            r#"BEGIN{x=011system("id")}"#,
            r#"BEGIN{x=0x1psystem("id")}"#,
            r#"{1print "x" > "out"}"#,
            r#"BEGIN{x=1ARGV[1]}"#,
        ] {
            assert_all_need_approval(&[&format!("{awk} '{program}' data.txt")]);
        }
    }
}

#[test]
fn an_awk_statement_ends_where_every_awk_ends_it() {
    for program in [
        "{print \"x\" in  # c\n\"y\" > \"out\"}",
        "{print \"x\", # c\n\"y\" > \"out\"}",
        "{print \"x\" \\\n> \"out\"}",
        "{print \"x\" \\\r\n> \"out\"}",
        "{print a ?\n\"x\" :\n\"y\" > \"out\"}",
        "{print (a\n) > \"out\"}",
        "{print (a)(b) > \"out\"}",
        "{print(1,2) > \"out\"}",
        "{printf(\"x\") > \"out\"}",
        "{printf(\"x\") >> \"out\"}",
        "{print a[1 > \"out\"]}",
        "{print a &&\nb > \"out\"}",
        "BEGIN{for(print \"x\" > \"out\";;) exit}",
        "{print > $1}",
        "{print > \"/dev/stdout\" \"x\"}",
        "{print > \"/inet/tcp/0/h/80\"}",
        "BEGIN{getline x[\"}\"] < \"config/prod/.env\"; print x[\"}\"]}",
        "BEGIN{getline l \\\n< \"f\"; print l}",
        "BEGIN{getline l # c\n< \"f\"; print l}",
        "BEGIN{f=\"x\"; while((getline l<f)>0) print l}",
        "BEGIN{\"id\" | getline x}",
        "BEGIN{\"id\" |& getline x}",
        "BEGIN{print \"x\" | \"sh\"}",
        "BEGIN{print \"x\" # c\n}\nEND{print | \"sh\"}",
    ] {
        let command = format!("awk '{program}' data.txt").replace('\r', "'$'\\r''");
        assert_all_need_approval(&[&command]);
    }
}

#[test]
fn a_slash_in_awk_divides_or_opens_a_pattern_and_nothing_hides_between() {
    for program in [
        r#"{x = a / b / system("x")}"#,
        r#"BEGIN{if (1) /"/; system("id") #"/"#,
        r#"/[[:x]/{system("id")} #:]]/"#,
        r#"/[/]"/; {system("id")} #"/"#,
        r#"/[\]/"/; {system("id")} #]"/"#,
        r#"{x++ /"/; system("id") #"/"#,
        r#"{x = length /"/; system("id") #"/"#,
        r#"{exit /"/; system("id") #"/"#,
        r#"{x = 1length /"/; system("id") #"/"#,
        "/a\\\n\"/; {system(\"id\")} #\"/",
        "{print \"a\\\n\"; system(\"id\")}",
        "{print \"a\n\"; system(\"id\")}",
        "{x = \"表\\\"; system(\"id\") #\"}",
    ] {
        assert_all_need_approval(&[&format!("awk '{program}' data.txt")]);
    }
}

#[test]
fn an_awk_program_that_loads_code_or_reads_its_environment_needs_approval() {
    assert_all_need_approval(&[
        r#"awk '@include "x.awk"' f"#,
        r#"gawk '@load "filefuncs"; BEGIN{}' f"#,
        r#"gawk '@namespace "x"' f"#,
        r#"gawk 'BEGIN{f="system"; @f("id")}' f"#,
        r#"gawk 'BEGIN{awk::system("id")}' f"#,
        r#"gawk 'BEGIN{extension("x.so","f")}' f"#,
        r#"gawk 'BEGIN{print PROCINFO["argv"][0]}' f"#,
        r#"gawk 'BEGIN{for (i in SYMTAB) print SYMTAB[i]}' f"#,
        r#"gawk 'BEGIN{for (i in FUNCTAB) print i}' f"#,
        r#"gawk 'BEGIN{bindtextdomain("x")}' f"#,
        r#"awk 'BEGIN{ARGV[1]="/etc/hosts"}1' f"#,
        r#"awk 'BEGIN{ARGC=1}1' f"#,
        "awk -f prog.awk f",
        "awk --file=prog.awk f",
        "awk --file prog.awk f",
        "gawk -e '{print}' f",
        "gawk -i inplace '{print}' f",
        "gawk --include=inplace '{print}' f",
        "gawk -E prog.awk f",
        "gawk -l readfile '{print}' f",
        "gawk -p out '{print}' f",
        "gawk -d '{print}' f",
        "gawk -D '{print}' f",
        "mawk -W exec prog.awk",
        "awk -safe '{print}' f",
        "awk '{print}'$'\\001' f",
    ]);
}

#[test]
fn a_word_behind_the_awk_program_is_a_file_unless_every_awk_assigns_it() {
    assert_all_need_approval(&[
        "awk 1 '0=/../../../etc/hosts'",
        "awk 1 /etc/hosts",
        "awk 1 -F /etc/hosts",
        "awk 1 -v /etc/hosts",
        "awk -- 1 -v /etc/hosts",
        "awk 1 'x==/../../../etc/hosts'",
        "awk 1 'a::b=/../../../etc/hosts'",
        "awk 1 'a.b=/../../../etc/hosts'",
        "awk 1 '=/../../../etc/hosts'",
        "awk 1 /inet/tcp/0/127.0.0.1/80",
        // An awk without this option takes its value for the program.
        r#"awk --assign 'BEGIN{system("id")}' '{print}' f"#,
        r#"awk --field-separator 'BEGIN{system("id")}' '{print}' f"#,
    ]);
    assert_all_allowed(&[
        "awk 1 x=/etc/hosts f",
        "awk '{print v}' v=1 data.txt",
        "awk -v n=5 -F: '$3>n' data.txt OFS=- data.txt",
    ]);
}

#[test]
fn everyday_awk_runs_without_approval() {
    for program in [
        "{print $1}",
        "{print $NF}",
        "{print $(NF-1)}",
        "$3>1000{print}",
        "NR>1 && $2 > 5",
        "/x/{c++} END{print c}",
        "/x/{c++} END{print c+0}",
        "NR==1",
        "NR%2==0",
        "NR>=10 && NR<=20",
        "!seen[$0]++",
        "{s+=$1} END{print s}",
        "{s+=$1} END{print s/NR}",
        "{s+=$1} END{if (NR > 0) print s/NR}",
        "{s+=$1; n++} END {printf \"%.2f\\n\", s/n}",
        "{printf \"%s\\t%d\\n\", $1, $2}",
        "BEGIN{FS=\",\"; OFS=\"\\t\"} {$1=$1; print}",
        "{a[$1]+=$2} END{for (k in a) print k, a[k]}",
        "{a[$1]=a[$1] ? a[$1] \",\" $2 : $2} END{for (k in a) print k, a[k]}",
        "NR==FNR{a[$1];next} $1 in a",
        "{gsub(/[^a-z]/, \"\"); print}",
        "{sub(/^ +/, \"\"); print}",
        "{sub(/\\.rs$/, \"\"); print}",
        "{n=split($0, a, /,/); print n, a[1]}",
        "{split($2, a, \":\"); print a[1]}",
        "{print length($0)}",
        "length($0) > 80",
        "length > 120",
        "{ if ($1 > max) max=$1 } END { print max }",
        "{ if (length($0) > max) { max=length($0); line=$0 } } END { print max, line }",
        "{print ($1 > $2 ? \"up\" : \"down\")}",
        "{print $1 == \"a\" ? \"x\" : \"y\"}",
        "{print toupper($1), tolower($2), substr($3, 1, 4)}",
        "/start/,/end/",
        "/start/{p=1} p; /end/{p=0}",
        "$1 ~ /^(a|b)$/",
        "$1 !~ /x|y/ {print $2}",
        "/error|warn/ {print FILENAME \":\" FNR \": \" $0}",
        "BEGIN{for (i=0; i<10; i++) print i}",
        "BEGIN{i=0; while (i<3) {print i; i++}}",
        "BEGIN { x = 1 / 3; printf \"%f\\n\", x }",
        "{ total += $5 } END { print total/1024/1024 \" MB\" }",
        "{print \"a > b | system()\"}",
        "/system/{print}",
        "match($0, /[0-9]+/) {print substr($0, RSTART, RLENGTH)}",
        "function f(x) {\n  return x * 2\n}\n{ print f($1) }",
        "BEGIN { printf(\"%s\\n\", \"x\") }",
        "# a comment: system()\n{ print $1 }",
        "{\n  if ($2 > 3)\n    print $1\n  else\n    print $3\n}",
        "{ x[NR] = $0 } END { for (i = NR; i > 0; i--) print x[i] }",
        "END{print NR}",
        "NF",
        "1; END{print \"done\"}",
        "{print > \"/dev/stderr\"}",
        "{ while ((getline line) > 0) n++ } END{print n}",
        "BEGIN{PROCINFO[\"sorted_in\"]=\"@ind_str_asc\"} {a[$1]++} END{for (i in a) print i}",
        "{ $2 = \"\"; print $0 }",
        "{ print $1, \\\n  $2 }",
        "{ d = ($3 - $2) / 60; print d }",
        "$2 >= 10 || $3 <= 5",
        "BEGIN { RS = \"\" } /x/",
        "{ delete a[$1]; a[$2] } END { print length(a) }",
        "{ c[$1]++ } END { for (k in c) if (c[k] > 1) print k, c[k] }",
        "{ printf \"%-20s %5.1f%%\\n\", $1, 100*$2/$3 }",
        "{ t = t + 1e3 + 0x1f; print t }",
        "/\"name\"/ { print $2 }",
        "{ gsub(\"\\\"\", \"\"); print }",
        "/é/ { print \"naïve\" }",
    ] {
        assert_all_allowed(&[&format!("awk '{program}' data.txt")]);
    }
    assert_all_allowed(&[
        "awk -F: '{print $1}' users.txt",
        "awk -F, -v OFS=, '{print $1,$3}' data.csv",
        "awk -F'\\t' '$3 > 5 {print $1}' data.tsv",
        "awk -v pat=x '$0 ~ pat' data.txt",
        "ls -l | awk '{s+=$5} END {print s}'",
        "awk \"/x/\" data.txt",
    ]);
}

#[test]
fn a_sed_script_that_writes_or_runs_in_any_sed_needs_approval() {
    for script in [
        "#\\rw m",
        "# x\\\\\\nw m",
        "\\\\\\nw m",
        "p\\n\\\\\\nw m",
        "s/a/b/\\r\\nw m",
        "b a\\rw m",
        ":a\\vw m",
        ":a#;w m",
        ":a}#;w m",
        "a\\\\ \\ns/x/\\nw m\\n/",
        "a x\\\\\\\\\\ni\\\\\\nw m",
        "s/[\\\\]/x/;w m;s/]/y/",
        "s/[[:x]/a/;w m;s/:]]/b/",
        "1e id",
        "s/a/b/e",
        "s/a/b/gpw m",
        "1r /etc/hosts",
        "1R /etc/hosts",
        "1W m",
        "{p;w m\\n}",
        "1!w m",
        "/x/,/y/{w m\\n}",
        "s,a,b,w m",
        "\\\\,x,w m",
        "y/a/b/;w m",
        "$!{N;w m\\n}",
    ] {
        assert_all_need_approval(&[&format!("sed $'{script}' f")]);
    }
    assert_all_need_approval(&[
        "sed -i s/a/b/ f",
        "sed -ni s/a/b/p f",
        "sed -i.bak s/a/b/ f",
        "sed -I .bak s/a/b/ f",
        "sed --in-place s/a/b/ f",
        "sed --in-place=.bak s/a/b/ f",
        "sed --in-pl s/a/b/ f",
        "sed -f x.sed f",
        "sed --file=x.sed f",
        "sed -n --expression='w m' f",
        "sed -e p -e 'w m' f",
        "sed -e '#c\\' -e 'w m' f",
        "sed --sandbox 'w m' f",
        "sed -l 'w m' p",
        "sed 'w m' -e p f",
        "sed -s -n '1w m' f",
        "sed -zn '1w m' f",
        "sed --posix 'w m' f",
        "sed p /etc/hosts",
    ]);
    assert_all_allowed(&[
        "sed -n 1,5p f",
        "sed -e 'a\\' -e 'w m' f",
        "sed -E 's/(a|b)/[\\1]/g' f",
        "sed $'s/\\r$//' f",
        "sed --posix -n '$p' f",
        "sed -l 20 -n l f",
        "sed -s -n '$=' f g",
        "sed ':a;N;$!ba;s/\\n/ /g' f",
        "sed -n '/^## \\[/,/^## \\[/p' f",
        "sed 's|[^/]*/||' f",
    ]);
}

#[test]
fn jq_and_yq_filters_that_reach_outside_need_approval() {
    assert_all_need_approval(&[
        "jq env a.json",
        "jq '$ENV.PATH' a.json",
        "jq '$ ENV' a.json",
        "jq -n '[inputs|env]' a.json",
        "jq '\"\\(env.HOME)\"' a.json",
        "jq $'# \\\\\\n\"\\nenv #\"' a.json",
        "jq 'import \"x\" as x; .' a.json",
        "jq 'include \"x\"; .' a.json",
        "jq -n 'get_search_list'",
        "jq '\"x\"|modulemeta' a.json",
        "jq -n '$__prog_args'",
        "jq -f prog.jq a.json",
        "jq --from-file prog.jq a.json",
        "jq --argfile x /etc/hosts . a.json",
        "jq --slurpfile x /etc/hosts . a.json",
        "jq --rawfile x /etc/hosts . a.json",
        "jq . /etc/hosts",
        "yq 'load(\"/etc/hosts\")' a.yaml",
        "yq 'env(HOME)' a.yaml",
        "yq 'strenv(HOME)' a.yaml",
        "yq '.a = envsubst(\"x\")' a.yaml",
        "yq -i .a=1 a.yaml",
        "yq --inplace .a=1 a.yaml",
        "yq -s .a a.yaml",
        "yq --from-file x.yq a.yaml",
        "yq /etc/hosts a.yaml",
        "yq . /etc/hosts",
    ]);
    assert_all_allowed(&[
        "jq . a.json",
        "jq -r '.scripts | to_entries[] | \"\\(.key): \\(.value)\"' package.json",
        "jq -r '.[] | @tsv' a.json",
        "jq '.env' a.json",
        "jq -n 'input' a.json",
        "jq 'getpath([\"a\",\"b\"])' a.json",
        "jq -r '.a | @sh' a.json",
        "jq --arg x 1 '.a[$x]' a.json",
        "yq -r .a.b a.yaml",
    ]);
}

#[test]
fn find_runs_nothing_behind_a_plus_that_one_find_takes_for_the_end() {
    assert_all_need_approval(&[
        "find . -exec echo {} a + -exec rm {} \\;",
        "find . -exec echo + -exec rm {} \\;",
        "find . -fprint out",
        "find . -fprint0 out",
        "find . -fls out",
        "find . -fprintf out %p",
        "find . -delete",
        "find . -name x -ok rm {} \\;",
        "find . -okdir rm {} \\;",
        "find . -execdir rm {} +",
        "find -files0-from list",
        "find . -newerXY x",
        "find /etc -newer x",
        "find . -samefile /etc/hosts",
    ]);
    assert_all_allowed(&[
        "find . -name '*.rs' -newermt 2024-01-01 -print0",
        "find . -type f -size +1M -printf '%p %s\\n'",
        "find . -name '*.txt' -exec wc -l {} +",
        "find . -name '*.txt' -exec head -n 1 {} \\;",
        "find src -maxdepth 2 -not -path '*/x/*' -mtime -7",
    ]);
}

#[test]
fn xargs_with_two_ways_to_place_its_words_hides_none_of_them() {
    assert_all_need_approval(&[
        "ls | xargs -I A -I B head B",
        "ls | xargs -I A -I cat cat a.txt",
        "cat a.txt | xargs -I A -n 1 head a.txt",
        "cat a.txt | xargs -I A --max-lines=1 head a.txt",
        "cat a.txt | xargs -i -l head a.txt",
    ]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn git_options_that_run_a_configured_program_need_approval() {
    assert_all_need_approval(&[
        "git branch --sort=signature",
        "git branch --sort=-signature:grade",
        "git branch --sort='*signature'",
        "git branch --sort signature",
        "git branch --format='%(signature)'",
        "git branch --format='%(*signature:key)'",
        "git branch --format='%(if)%(signature)%(then)x%(end)'",
        "git tag --sort=signature",
        "git tag -l --sort=-*signature",
        "git tag -l --format='%(signature:grade)'",
        "git tag -v v1",
        "git tag --verify v1",
        "git for-each-ref --sort=signature",
        "git for-each-ref --sort signature:signer",
        "git for-each-ref --format='%(*signature)'",
        "git log --format=%G?",
        "git log --format=%+GS",
        "git log --format='%-GK'",
        "git log --format='% GF'",
        "git log --format='%<(20)%GP'",
        "git log --pretty='tformat:%h %GT'",
        "git log --pretty=mine",
        "git log --format=mine",
        "git log --show-signature",
        "git show --show-signature HEAD",
        "git show --pretty=%GG HEAD",
        "git rev-list --format=%G? HEAD",
        "git reflog --format=%G?",
        "git stash list --format=%G?",
        "git shortlog --group=format:%GS HEAD",
        "git shortlog --format=%GS HEAD",
        "git diff-tree --pretty=%G? HEAD",
        "git whatchanged --format=%G?",
        "git verify-commit HEAD",
        "git verify-tag v1",
        "git log --remerge-diff",
        "git log --diff-merges=remerge",
        "git log --diff-merges=r -p",
        "git diff --ext-diff",
        "git diff --textconv",
        "git log -p --ext-diff",
        "git log -p --textconv",
        "git cat-file --textconv HEAD:a",
        "git cat-file --filters HEAD:a",
        "git grep -O x",
        "git grep -Ovi x",
        "git grep --open-files-in-pager x",
        "git grep --open-files-in-pager=./x x",
        "git grep --textconv x",
        "git -p log",
        "git --paginate log",
        "git -c core.pager=./x log",
        "git -c log.showSignature=true log",
        "git -c alias.x=!id x",
        "git -c gpg.program=./x log",
        "git -c diff.external=./x diff",
        "git -c core.fsmonitor=./x status",
        "git --config-env=core.pager=X log",
        "git --exec-path=. log",
        "git lg",
        "git difftool",
        "git mergetool",
        "git instaweb",
        "git log --alternate-refs",
        "git archive HEAD",
        "git blame --contents /etc/hosts a",
        "git branch --edit-description",
        "git var -l",
        "git help -w log",
        "git remote show origin",
        "git ls-remote",
        "git config -e",
        "git config --edit",
    ]);
    assert_all_allowed(&[
        "git log --oneline -5",
        "git log --format='%h %s'",
        "git log --format='%C(auto)%h %ad %s' --date=short",
        "git log --pretty=format:'%h %an'",
        "git log --pretty=fuller -1",
        "git show --stat --format= HEAD",
        "git branch --sort=-committerdate --format='%(refname:short) %(committerdate:relative)'",
        "git for-each-ref --sort=-creatordate --format='%(refname)' refs/tags",
        "git tag --sort=-v:refname",
        "git log --diff-merges=first-parent -p",
    ]);
}

#[test]
fn ps_that_shows_environments_needs_approval() {
    assert_all_need_approval(&[
        "ps e",
        "ps eww",
        "ps axe",
        "ps auxe",
        "ps auxeww",
        "ps -auxe",
        "ps -axe",
        "ps -e -x",
        "ps -ex",
        "ps -e -u x",
        "ps -eu x",
        "ps -x -C e",
        "ps -s -axe",
        "ps -T -e --forest",
        "ps -e -H -T",
        "ps -eL --forest",
        "ps -ef -o pid,args",
        "ps -g -e -x",
        "ps -e e",
        "ps -ef e",
        "ps -u user -o pid,args",
        "ps -o pid,environ=",
        "ps -o pid,environ",
        "ps -opid,environ",
        "ps -o pid= -o environ=",
        "ps -o args,environ",
        "ps -O environ",
        "ps -Oenviron",
        "ps -eo environ",
        "ps axo environ",
        "ps ax o pid,environ",
        "ps O environ",
        "ps -p 1 -o environ",
        "ps --format=environ",
        "ps --format environ",
        "ps --pid=1 --format=pid,environ:100",
        "ps -o pid=x,environ",
        "ps -o ENVIRON",
        "PS_FORMAT=environ ps",
        "PS_PERSONALITY=bsd ps -e",
        "ps -E",
        "ps -o \"$x\"",
    ]);
    assert_all_allowed(&[
        "ps",
        "ps aux",
        "ps auxww",
        "ps auxf",
        "ps -ef",
        "ps -e",
        "ps -A",
        "ps -ef --forest",
        "ps -eo pid,ppid,etime,args --sort=-%mem",
        "ps -e -o pid= -o comm=",
        "ps axo pid,comm,etime",
        "ps ax -o pid,cmd",
        "ps -p 1",
        "ps -p 1,2 -o pid,args",
        "ps -o pid,stat,cmd -p 12",
        "ps -u root",
        "ps -C node -o pid,rss",
        "ps 1",
        "ps -T -p 5",
        "ps aux --sort=-%cpu",
        "ps -aux",
        "ps -eLf",
    ]);
    // A grant for a program does not cover other values of its environment.
    check("ps axe", &["ps@any"], "ask[ps]");
}
