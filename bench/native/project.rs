// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Projects (`unilith.toml`) of this computer's own Debian programs, so that machines run the very files that run
//! natively.

use crate::{Result, Scratch};
use std::path::{Path, PathBuf};

pub const REDIS: &str = "/usr/bin/redis-server";
pub const REDIS_WORDS: [&str; 4] = ["--protected-mode", "no", "--save", ""];
pub const NGINX: &str = "/usr/sbin/nginx";
pub const SQLITE: &str = "/usr/bin/sqlite3";
/// Bytes of the page, as many as nginx' own welcome has.
const PAGE: usize = 612;
const INSERTS: u32 = 60_000;
/// SQL for milliseconds since 1970.
const NOW: &str = "select (julianday('now') - 2440587.5) * 86400000.0;\n";

/// The folders of the projects.
pub struct Project(Scratch);

impl Project {
    pub fn new() -> Result<Project> {
        for program in [REDIS, NGINX, SQLITE] {
            if !Path::new(program).exists() {
                let packages = "redis-server nginx-light sqlite3";
                return Err(format!("{program} is not installed: apt-get install {packages}"));
            }
        }
        Ok(Project(Scratch::new("native")?))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A folder with these files.
    fn folder(&self, name: &str, files: &[(&str, String)]) -> Result<PathBuf> {
        let folder = self.path(name);
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for (file, text) in files {
            let path = folder.join(file);
            std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(folder)
    }

    pub fn redis(&self) -> Result<PathBuf> {
        let settings = format!(
            "from = \"{REDIS}\"\nargs = {REDIS_WORDS:?}\nports = [\"6379\"]\nready = {{ listening = 6379 }}\n"
        );
        self.folder("redis", &[("unilith.toml", settings)])
    }

    pub fn nginx(&self) -> Result<PathBuf> {
        let settings = format!(
            "from = \"{NGINX}\"\nargs = [\"-c\", \"/bench/nginx.conf\"]\nports = [\"80\"]\n\
             ready = {{ listening = 80 }}\ndirectories = [\"/var/log/nginx\", \"/var/lib/nginx\", \"/run\"]\n"
        );
        let settings = settings
            + "[files]\n\"/bench/nginx.conf\" = \"nginx.conf\"\n\"/bench/index.html\" = \"index.html\"\n";
        let configuration = |root: &str| {
            format!(
                "daemon off;\nmaster_process off;\nerror_log stderr warn;\npid {root}/nginx.pid;\n\
                 events {{ worker_connections 4096; }}\n\
                 http {{ default_type text/html; access_log off; sendfile on; tcp_nopush on;\n\
                 keepalive_requests 1000000;\n\
                 server {{ listen 80 backlog=4096; root {root}; index index.html; }} }}\n"
            )
        };
        let here = self.path("nginx").display().to_string();
        let files = [
            ("unilith.toml", settings),
            ("nginx.conf", configuration("/bench")),
            ("native.conf", configuration(&here)),
            ("index.html", "x".repeat(PAGE)),
        ];
        self.folder("nginx", &files)
    }

    pub fn sqlite(&self) -> Result<PathBuf> {
        let settings = format!("from = \"{SQLITE}\"\nargs = [\":memory:\", \".read /bench/script.sql\"]\n");
        let settings = settings + "[files]\n\"/bench/script.sql\" = \"script.sql\"\n";
        let mut script = format!("create table t(id integer primary key, text text);\n{NOW}");
        (0..INSERTS).for_each(|n| script.push_str(&format!("insert into t(text) values('row {n}');\n")));
        script.push_str(NOW);
        self.folder("sqlite", &[("unilith.toml", settings), ("script.sql", script)])
    }
}
