// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which service starts before which.

use crate::{Mistake, Result, service::Service};

/// The services with all that they depend on first; otherwise in the order of the file.
pub fn order(services: &[Service]) -> Result<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let find = |name: &str| services.iter().position(|s| s.name == name);
    let mut marks = vec![Mark::New; services.len()];
    let mut order = Vec::new();
    for first in 0..services.len() {
        // The way down to the service that is looked at, and which of its dependencies is next.
        let mut way: Vec<(usize, usize)> = Vec::new();
        if marks[first] == Mark::New {
            marks[first] = Mark::Open;
            way.push((first, 0));
        }
        while let Some((service, next)) = way.last_mut() {
            let Some(dependency) = services[*service].depends_on.get(*next) else {
                marks[*service] = Mark::Done;
                order.push(*service);
                way.pop();
                continue;
            };
            *next += 1;
            let Some(other) = find(&dependency.service) else { continue };
            match marks[other] {
                Mark::Done => {}
                Mark::New => {
                    marks[other] = Mark::Open;
                    way.push((other, 0));
                }
                Mark::Open => {
                    let from = way.iter().position(|(s, _)| *s == other).unwrap_or(0);
                    let names: Vec<&str> =
                        way[from..].iter().map(|(s, _)| services[*s].name.as_str()).collect();
                    return Err(Mistake::new(
                        dependency.line,
                        format!(
                            "services wait for each other: {} -> {}",
                            names.join(" -> "),
                            services[other].name
                        ),
                    ));
                }
            }
        }
    }
    Ok(order)
}
