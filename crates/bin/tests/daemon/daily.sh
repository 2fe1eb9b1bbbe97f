# A project to look around in: with a submodule, a work tree, a filter like that of LFS, and a home with a git configuration
# that few have. Everything that the day's commands name is there.
set -eu
export GIT_AUTHOR_NAME=Dev GIT_AUTHOR_EMAIL=dev@example.org GIT_COMMITTER_NAME=Dev GIT_COMMITTER_EMAIL=dev@example.org
export GIT_AUTHOR_DATE='2026-01-02T03:04:05Z' GIT_COMMITTER_DATE='2026-01-02T03:04:05Z'
mkdir -p "$HOME/.config/git"
cat > "$HOME/.gitconfig" <<'CONFIG'
[user]
	name = Dev "the" Elder
	email = dev@example.org
[core]
	pager = less -R
	excludesFile = ~/.config/git/everywhere
	attributesFile = ~/.attributes
	quotePath = false
	abbrev = 9
[alias]
	st = status -sb
	pwn = !touch pwned
[color]
	ui = auto
[diff]
	noprefix = true
	algorithm = histogram
[log]
	date = iso
	showSignature = false
[init]
	defaultBranch = main
[protocol "file"]
	allow = always
[url "git@host.example:"]
	insteadOf = https://host.example/
[includeIf "gitdir:~/project/"]
	path = ~/.gitconfig-work
[include]
	path = .config/git/more
[credential]
	helper = store
[safe]
	directory = *
CONFIG
printf '[user]\n\temail = work@example.org\n' > "$HOME/.gitconfig-work"
printf '[pretty]\n\tline = %%h %%s\n' > "$HOME/.config/git/more"
printf '*.scratch\n' > "$HOME/.config/git/everywhere"
printf '*.md diff=prose\n' > "$HOME/.attributes"
lib="$HOME/library"
git init -q -b main "$lib" && (cd "$lib" && echo 'pub fn lib() {}' > lib.rs && git add . && git commit -qm 'a library')
origin="$HOME/origin"
git init -q -b main "$origin"
cd "$origin"
mkdir -p src/parser tests docs crates/core/src data logs .github/workflows assets scripts dist vendor target/debug config
for n in main lib config parser; do
  printf '// TODO: %s\npub fn %s_test() { parse(); vec![1].len(); x.unwrap(); }\nfn main() {\n    panic!("no");\n}\nimpl Display for X {}\nstruct Config { name: u8 }\nasync fn foo() {}\n' "$n" "$n" > "src/$n.rs"
done
seq 1 200 | sed 's/.*/\/\/ line & of a file that is rather long/' >> src/lib.rs
seq 1 80 | sed 's/.*/\/\/ line &/' >> src/parser.rs
echo 'mod x;' > src/parser/mod.rs; echo 'import a' > src/index.ts; echo 'import os' > tests/a.py; echo 'pub fn common() {}' > tests/common.rs
printf '[package]\nname = "app"\nversion = "1.2.3"\n[dependencies]\nserde = "1"\n' > Cargo.toml
printf '[[package]]\nname = "serde"\nversion = "1.0.0"\n' > Cargo.lock
printf '{"name":"app","version":"1.2.3","license":"MIT","scripts":{"build":"tsc","test":"jest"},"dependencies":{"a":"1"}}\n' > package.json
echo '# Read me' > README.md; echo '# Docs' > docs/README.md; echo 'more words' > docs/more.md; echo 'changes' > CHANGELOG.md
echo 'on: push' > .github/workflows/ci.yml; printf 'target\n*.log\n' > .gitignore; echo '{}' > tsconfig.json
printf '[package]\nname = "core"\n' > crates/core/Cargo.toml; echo 'pub fn core() {}' > crates/core/src/lib.rs
printf 'b\na\nfoo\n' > a.txt; printf 'b\nfoo\nz\n' > b.txt; sort a.txt > a.sorted; sort b.txt > b.sorted
echo 'k=v' > old.conf; echo 'k=w' > new.conf; printf '# c\n\nk=v\n' > config.ini; printf '\1\2\3' > data.bin; cp data.bin a.bin; printf '\1\2\4' > b.bin
printf 'x y\nx z\n' > names.txt; printf 'b\na\nb\n' > deps.txt; printf 'h,i,j\n1,2,3\n4,5,6\n' > data.csv; printf 'BEGIN\nfoo  a c\nEND\n' > notes.txt
printf '1.1.1.1 x\n' > access.log; printf 'u:x:1\n' > users.txt; printf '{"items":[1,2]}\n' > data.json; printf '[{"level":"error","message":"m"}]\n' > logs.json
printf 'services:\n  a: {}\n' > docker-compose.yml; printf 'error: x\nwarning: y\n' > build.log; printf '\211PNG' > assets/logo.png; cp assets/logo.png assets/icon.png
printf 'z\nb\nb\n' > words.txt; printf '{"a":1}' > data/sample.json; printf 'rm -rf x\ncurl x | sh\n' > scripts/a.sh; echo 'js' > dist/app.js; cp src/main.rs vendor/; ln -s src current
printf '*.big filter=big\n' > .gitattributes
git config filter.big.clean 'sed s/large/small/'
git config filter.big.smudge 'sed s/small/large/'
echo 'a large file' > model.big
git add -A && git commit -qm 'one'
for n in 2 3 4 5; do echo "// $n" >> src/main.rs; echo "parse_config $n" >> src/config.rs; git commit -qam "change $n: drop table"; done
git tag v1.2.0 HEAD~1; git tag v1.10.0; git branch feature
git -c protocol.file.allow=always submodule -q add "$lib" sub && git commit -qm 'with a library'
git clone -q "$origin" "$HOME/project"
cd "$HOME/project"
git config filter.big.clean 'sed s/large/small/'
git config filter.big.smudge 'sed s/small/large/'
git -c protocol.file.allow=always submodule -q update --init
git worktree add -q "$HOME/tree" -b side
mkdir -p logs target/debug data
echo 'Connection refused' > logs/app.log; echo 'ERROR old' | gzip -n > logs/old.log.gz; echo bin > target/debug/app; cp target/debug/app target/app
cp "$origin"/build.log "$origin"/access.log .
echo '// not committed' >> src/main.rs; echo 'new' > new.txt; echo 'x' > skipped.scratch; echo 'a large change' > model.big
git add src/main.rs; echo '// nor added' >> src/lib.rs
GIT_COMMITTER_DATE='2026-01-02T03:04:05Z' git stash list > /dev/null
mkdir -p node_modules/a; echo 'useState' > node_modules/a/x.js
