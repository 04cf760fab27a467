// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which share of Debian's popular packages starts: a random sample of the list tests/trial/popular.txt, each package typed as
//! somebody would who knows no more than its name.
//!
//! Nobody writes down beforehand what a package prints, so each draw is of packages that nothing was mended for. A package *starts* if
//! its program, run without arguments, goes on until it is ended, or if without arguments or with one of the words of [`WORDS`] it
//! ends with 0 or prints how it is used. A program that lacks a file, a library, a module or a system call says so, and does not start.
//!
//! `./unilith test --long popular` draws anew each time. `UNILITH_SAMPLE_SEED` draws the same packages again, `UNILITH_SAMPLE_SIZE`
//! says how many, `UNILITH_TRIAL_JOBS` how many at once. What came of it is printed and in target/popular-MACHINE.txt; the last one that
//! somebody looked at is kept as tests/trial/popular-MACHINE.txt, and the front page says its share.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::{fs, path::PathBuf};
use unilith_tests::root;

fn machine() -> String {
    std::env::var("UNILITH_TEST_MACHINE").unwrap_or_else(|_| "process".into())
}

/// The names of the list, most popular first.
fn list() -> Vec<(u32, String)> {
    let text = fs::read_to_string(root().join("tests/trial/popular.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').unwrap()).map(|(r, n)| (r.parse().unwrap(), n.into())).collect()
}

/// `size` different packages; the same for the same seed (SplitMix64 by Steele, Lea and Flood, and the shuffle of Fisher and Yates).
fn draw(mut seed: u64, size: usize) -> Vec<(u32, String)> {
    let mut random = || {
        seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    let mut all = list();
    let size = size.min(all.len());
    for i in 0..size {
        let other = i + (random() % (all.len() - i) as u64) as usize;
        all.swap(i, other);
    }
    all.truncate(size);
    all
}

fn kept(machine: &str) -> PathBuf {
    root().join(format!("tests/trial/popular-{machine}.txt"))
}

#[test]
fn the_list_is_in_order_and_a_seed_means_one_sample() {
    let all = list();
    assert!(all.len() >= 1000 && all.is_sorted() && all[0] == (12, "sed".into()));
    assert_eq!(draw(7, 40), draw(7, 40));
    assert_ne!(draw(7, 40), draw(8, 40));
    let mut whole = draw(7, usize::MAX);
    whole.sort();
    assert_eq!(whole, all, "none is drawn twice");
}

#[test]
fn the_front_page_says_the_share_that_was_measured() {
    let page = fs::read_to_string(root().join("README.md")).unwrap();
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = fs::read_to_string(kept("process")).unwrap();
    // `# DATE on MACHINE, seed SEED: STARTED of SIZE start (PERCENT %)`.
    let title = text.lines().next().unwrap();
    let (head, counts) = title.split_once(": ").unwrap();
    let (started, rest) = counts.split_once(" of ").unwrap();
    let size = rest.split(' ').next().unwrap();
    let date = head.split(' ').nth(1).unwrap();
    let seed = head.rsplit(' ').next().unwrap();
    for says in [format!("{started} of {size}"), date.into(), "(tests/trial/popular-process.txt)".into()] {
        assert!(words.contains(&says), "README.md is to say {says}");
    }
    let rows: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let began = rows.iter().filter(|row| row.ends_with("\tstarts")).count();
    assert_eq!((began.to_string(), rows.len().to_string()), (started.into(), size.into()));
    let drawn = draw(seed.parse().unwrap(), rows.len() + text.matches("\n# no program: ").count());
    let is_row = |name: &str| rows.iter().any(|row| row.split('\t').nth(1) == Some(name));
    let is_left_out = |name: &str| text.contains(&format!("\n# no program: {name}\n"));
    let missing: Vec<_> = drawn.iter().filter(|(_, n)| !is_row(n) && !is_left_out(n)).collect();
    assert!(missing.is_empty(), "drawn with that seed, and without a result: {missing:?}");
}

mod long {
    use super::*;
    use std::{
        fmt::Write as _,
        process::{Child, Command},
        sync::{
            Mutex,
            atomic::{AtomicUsize, Ordering},
        },
        time::{Duration, Instant, SystemTime, UNIX_EPOCH},
    };
    use unilith_tests::{Unilith, finish, limit, signal};

    /// Packages of a sample that nobody said a size for.
    const SIZE: usize = 60;
    /// What a stranger types behind a name, in this order, until something starts.
    const WORDS: [&str; 6] = ["", "--version", "--help", "-V", "-h", "version"];
    /// A program that goes on for so long has started.
    const STAYS: Duration = Duration::from_secs(8);
    /// Fetching a package and building its image.
    const FETCH: Duration = Duration::from_secs(600);
    /// One of so many may not start before the test fails: of sixty packages drawn at random the share is off by four in a hundred.
    const TOLERATED: usize = 5;
    const REASON: usize = 160;
    /// What programs, shells, the loader and languages print that lack something, in lower case.
    const LACKS: [&str; 13] = [
        "error while loading shared libraries",
        "symbol lookup error",
        "can't locate",
        "modulenotfounderror",
        "importerror",
        "traceback (most recent call last)",
        "cannot load such file",
        "function not implemented",
        "segmentation fault",
        "command not found",
        "not found in $path",
        "no such file or directory",
        ": not found",
    ];

    enum Result {
        Starts(String),
        Fails(String),
        NoProgram,
    }

    /// A program's end, and what it printed; `None`: it went on and was ended.
    struct Tried {
        code: Option<i32>,
        text: String,
    }

    fn end(child: &mut Child) -> Option<i32> {
        let begin = Instant::now();
        while begin.elapsed() < limit(STAYS) {
            if let Some(status) = child.try_wait().unwrap() {
                return Some(status.code().unwrap_or(-1));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // Ends its machine at once.
        signal(rustix::process::Signal::QUIT, child.id());
        child.wait().unwrap();
        None
    }

    fn attempt(unilith: &Unilith, words: &[&str]) -> Tried {
        let machine = machine();
        let (out, err) = (unilith.path("out"), unilith.path("err"));
        let mut command = unilith.command(&[&["run", "--rm", "--machine", &machine], words].concat());
        command.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&err).unwrap());
        let code = end(&mut command.spawn().unwrap());
        let read = |path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        Tried { code, text: read(&out) + &read(&err) }
    }

    impl Tried {
        fn starts(&self) -> bool {
            let text = self.text.to_lowercase();
            let Some(code) = self.code else { return true };
            if code >= 125 || LACKS.iter().any(|lack| text.contains(lack)) {
                return false;
            }
            code == 0 || text.contains("usage") || text.contains("--help")
        }

        fn reason(&self) -> String {
            let lines: Vec<&str> = self.text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
            let last = lines[lines.len().saturating_sub(2)..].join(" / ");
            let last: String = last.chars().filter(|c| !c.is_control()).take(REASON).collect();
            format!("ends with {}: {last}", self.code.unwrap_or_default())
        }
    }

    fn one(package: &str) -> Result {
        let unilith = Unilith::new();
        let name = format!("debian:{package}");
        let fetched = finish(&mut unilith.command(&["check", &name]), FETCH);
        let mut program = Vec::new();
        // The message names them, as in `several programs: a, b; name one`; people take the first.
        if let Some((_, names)) = fetched.err.split_once("several programs: ") {
            program.extend(names.split([',', ';']).next());
        } else if fetched.err.contains(" has no program") {
            return Result::NoProgram;
        }
        let mut first = None;
        for word in WORDS {
            let mut words = vec![name.as_str()];
            words.extend(program.iter().copied().chain(Some(word)).filter(|w| !w.is_empty()));
            let tried = attempt(&unilith, &words);
            if tried.starts() {
                return Result::Starts(words.join(" "));
            }
            first.get_or_insert(tried.reason());
        }
        Result::Fails(first.unwrap_or_default())
    }

    fn number(name: &str, otherwise: u64) -> u64 {
        std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
    }

    #[test]
    #[ignore = "half an hour: fetches gigabytes of packages"]
    fn packages_drawn_from_the_popular_ones_start() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let seed = number("UNILITH_SAMPLE_SEED", now);
        let sample = draw(seed, number("UNILITH_SAMPLE_SIZE", SIZE as u64) as usize);
        let machine = machine();
        eprintln!("UNILITH_SAMPLE_SEED={seed} draws these {} packages again", sample.len());
        // Builds the kernel.
        let kernel = ["run", "--rm", "--machine", &machine, "busybox", "true"];
        finish(&mut Unilith::new().command(&kernel), FETCH).ok();
        let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..number("UNILITH_TRIAL_JOBS", 1) {
                scope.spawn(|| {
                    while let Some((rank, name)) = sample.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let result = one(name);
                        match &result {
                            Result::Starts(words) => eprintln!("{words}: starts"),
                            Result::Fails(why) => eprintln!("{name}: fails: {why}"),
                            Result::NoProgram => eprintln!("{name}: no program"),
                        }
                        results.lock().unwrap().push((*rank, name, result));
                    }
                });
            }
        });
        let mut results = results.into_inner().unwrap();
        results.sort_by_key(|(rank, ..)| *rank);
        let (mut rows, mut left_out, mut started, mut failed) = (String::new(), String::new(), 0, Vec::new());
        for (rank, name, result) in &results {
            match result {
                Result::Starts(words) => {
                    started += 1;
                    writeln!(rows, "{rank}\t{name}\t{words}\tstarts").unwrap();
                }
                Result::Fails(why) => {
                    failed.push(name);
                    writeln!(rows, "{rank}\t{name}\t\tfails: {}", why.replace('\t', " ")).unwrap();
                }
                Result::NoProgram => writeln!(left_out, "# no program: {name}").unwrap(),
            }
        }
        let size = started + failed.len();
        let date = Command::new("date").arg("+%F").output().unwrap().stdout;
        let date = String::from_utf8_lossy(&date);
        let percent = started as f64 * 100.0 / size as f64;
        let title = format!(
            "# {} on {machine}, seed {seed}: {started} of {size} start ({percent:.1} %)",
            date.trim()
        );
        eprintln!("{title}");
        let path = root().join(format!("target/popular-{machine}.txt"));
        fs::write(&path, format!("{title}\n{left_out}{rows}")).unwrap();
        assert!(failed.len() * TOLERATED <= size, "{title}; {} has the reasons: {failed:?}", path.display());
    }
}
