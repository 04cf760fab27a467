// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's sqlite3 with its database on a volume; the host's sqlite3 checks what it left.

use std::time::Duration;
use unilith_tests::{Unilith, client};

#[test]
fn sixty_thousand_rows_survive_on_a_volume_and_are_whole() {
    let unilith = Unilith::new();
    let folder = unilith.path("data");
    std::fs::create_dir(&folder).unwrap();
    let volume = format!("{}:/data", folder.display());
    let sql = "create table t(id integer primary key, text text);\
               with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000)\
               insert into t select i, 'row ' || i from n;\
               select count(*) from t;";
    let run = |sql: &str| {
        let words = ["-v", &volume, "sqlite", "--", "/data/test.db", sql];
        unilith.program_within(&words, Duration::from_secs(180)).ok()
    };
    run(sql).says("60000");
    // Another machine finds what the first one left.
    run("select text from t where id = 60000; insert into t(text) values('more');").says("row 60000");
    let database = folder.join("test.db").display().to_string();
    client("sqlite3", &[&database, "pragma integrity_check; select count(*) from t;"]).ok().says("ok\n60001");
}

#[test]
fn sixty_thousand_statements_of_their_own_are_all_kept() {
    let unilith = Unilith::new();
    let folder = unilith.path("data");
    std::fs::create_dir(&folder).unwrap();
    let mut script = String::from("create table t(n integer);\nbegin;\n");
    (0..60_000).for_each(|n| script.push_str(&format!("insert into t values({n});\n")));
    script.push_str("commit;\nselect sum(n) from t;\n");
    std::fs::write(folder.join("script.sql"), script).unwrap();
    let volume = format!("{}:/data", folder.display());
    let words = ["-v", &volume, "sqlite", "--", "/data/test.db", ".read /data/script.sql"];
    unilith.program_within(&words, Duration::from_secs(240)).ok().says("1799970000");
    let database = folder.join("test.db").display().to_string();
    client("sqlite3", &[&database, "pragma integrity_check; select count(*) from t;"]).ok().says("ok\n60000");
}

#[test]
fn a_read_only_volume_cannot_be_written() {
    let unilith = Unilith::new();
    let folder = unilith.path("data");
    std::fs::create_dir(&folder).unwrap();
    let volume = format!("{}:/data:ro", folder.display());
    let ran = unilith.program(&["-v", &volume, "sqlite", "--", "/data/test.db", "create table t(n);"]);
    assert_ne!(ran.code, Some(0), "{ran}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}
