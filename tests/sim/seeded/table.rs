//! The mistakes the simulator must find: each was made by the protocol's first draft, or is made by a peer.
//!
//! `build.rs` takes this too, and writes a copy of the core in which each text is itself, or its faulty form if that bug is
//! chosen. White space does not count; a text that is not there exactly once breaks the build.

/// A mistake.
#[derive(Debug)]
pub(crate) struct Bug {
    pub(crate) name: &'static str,
    /// The rule it breaks.
    pub(crate) rule: &'static str,
    /// What it may break first, by the promise's name: found for another reason it is not found.
    pub(crate) breaks: &'static [&'static str],
    pub(crate) texts: &'static [Text],
}

/// A place it is made in.
#[derive(Debug)]
pub(crate) struct Text {
    /// Below `runtime/src/core`.
    pub(crate) file: &'static str,
    pub(crate) production: &'static str,
    pub(crate) faulty: Faulty,
}

/// What stands there instead.
#[derive(Debug)]
pub(crate) enum Faulty {
    Expression(&'static str),
    Statements(&'static str),
    /// Comes before the production text, which stays; `CHOSEN` stands for whether the bug is.
    Before(&'static str),
}

use Faulty::{Before, Expression, Statements};

pub(crate) const BUGS: &[Bug] = &[
    Bug {
        name: "deadline from receive time",
        rule: "P28",
        breaks: &["I1"],
        texts: &[
            Text {
                file: "renewals.rs",
                production: "l.renewed(now, sent, ttl)",
                faulty: Expression("l.renewed(now, now, ttl)"),
            },
            Text {
                file: "pool.rs",
                production: "l.granted(sent, id, ttl, bundle::session_key(&prefix, id))",
                faulty: Expression("l.granted(now, id, ttl, bundle::session_key(&prefix, id))"),
            },
        ],
    },
    Bug {
        name: "no allowance for drift",
        rule: "P28",
        breaks: &["I1"],
        texts: &[
            Text {
                file: "lease.rs",
                production: "self.valid_until = sent + ttl.mul_f64(1.0 - DRIFT)",
                faulty: Expression("self.valid_until = sent + ttl"),
            },
            Text {
                file: "lease.rs",
                production: "self.valid_until.max(sent + ttl.mul_f64(1.0 - DRIFT))",
                faulty: Expression("self.valid_until.max(sent + ttl)"),
            },
        ],
    },
    Bug {
        name: "two acquisitions of one name in a bundle",
        rule: "P5",
        breaks: &["I6", "I1"],
        // Each call has a queue of its own.
        texts: &[
            Text {
                file: "queues.rs",
                production: "let once = wait == Wait::Once;",
                faulty: Before(
                    "let names = if CHOSEN && mode == Mode::Exclusive { names.iter().map(|name| format!(\"{name}\\u{1}{call}\").into()).collect() } else { names };",
                ),
            },
            Text {
                file: "place.rs",
                production: "[name_of(place), \"/\"].concat()",
                faulty: Expression(
                    "format!(\"{}/\", name_of(place).split('\\u{1}').next().unwrap_or(place))",
                ),
            },
        ],
    },
    Bug {
        name: "a DELETE taken for a newer incarnation",
        rule: "P14",
        breaks: &["Truth"],
        texts: &[Text {
            file: "watches.rs",
            production: "if revision > created { self.own_key_gone(now, &name, LossCause::Deleted); }",
            faulty: Statements("self.own_key_gone(now, &name, LossCause::Deleted);"),
        }],
    },
    Bug {
        name: "\"pred gone\" taken for ownership",
        rule: "P14",
        breaks: &["Order", "I1"],
        texts: &[
            Text {
                file: "watches.rs",
                production: "let Slot::Queued(queued) = &mut queue.slot else {",
                faulty: Before("let was_last = queue.predecessors.last() == Some(&*key);"),
            },
            Text {
                file: "watches.rs",
                production: "queued.ready = queue.predecessors.let_in(queue.seat.mode());",
                faulty: Statements(
                    "queued.ready = queue.predecessors.let_in(queue.seat.mode()).or(was_last.then_some(revision));",
                ),
            },
        ],
    },
    Bug {
        name: "readers join a key as long as it is held",
        rule: "P37",
        breaks: &["Order"],
        texts: &[Text {
            file: "shares.rs",
            production: "let seen = run.was_seen(now - OPEN);",
            faulty: Before("if CHOSEN { return Gate::Open; }"),
        }],
    },
    Bug {
        name: "a key goes with the first of its readers",
        rule: "P37",
        breaks: &["I11", "I1"],
        texts: &[Text {
            file: "shares.rs",
            production: "*first = beside.pop()?;",
            faulty: Before("if CHOSEN { return None; }"),
        }],
    },
    Bug {
        name: "who shares counts those that came later",
        rule: "P37",
        breaks: &["Progress", "Truth"],
        texts: &[Text {
            file: "bundle.rs",
            production: "range(0, values, Order::OldestFirst, Some(look.created))",
            faulty: Expression(
                "range(0, values, Order::OldestFirst, (!values).then_some(look.created))",
            ),
        }],
    },
    Bug {
        name: "revoke at stop time with a body in mid-poll",
        rule: "P26",
        breaks: &["I11"],
        texts: &[Text {
            file: "losses.rs",
            production: "if matches!(l.state, State::Retired | State::Lost) && l.bodies == 0 {",
            faulty: Before(
                "if CHOSEN && l.state == State::Lost && l.bodies > 0 {
                    let id = l.id;
                    self.send(now, Request::Revoke { lease: id }, Exchange::Revoke);
                    return;
                }",
            ),
        }],
    },
    Bug {
        name: "key put again while its delete is unresolved",
        rule: "P4",
        breaks: &["I6", "I1", "I3", "I11"],
        texts: &[Text {
            file: "deletions.rs",
            production: "match l.state {
                State::Lost => Slot::Free,
                _ => Slot::Deleting { lease, created, confirm: confirm.then_some(call), },
            }",
            faulty: Expression("Slot::Free"),
        }],
    },
    Bug {
        name: "unanswered put resent without a seal",
        rule: "P8",
        breaks: &["I6", "I4"],
        texts: &[Text {
            file: "puts.rs",
            production: "if let Some(l) = self.leases.get_mut(&lease) {
                    l.failed(sent, cause);
                    for name in bids.iter().flat_map(|bid| &*bid.names) {
                        if let Some(queue) = self.queues.get_mut(name)
                            && queue.is_putting(lease)
                        {
                            queue.slot = Slot::Doubt { lease };
                            l.doubt.push(name.clone());
                        }
                    }
                }
                self.seal(now, lease);",
            faulty: Statements(
                "self.unput(now, lease, bids);
                self.hold_off(now, lease, sent, cause);",
            ),
        }],
    },
    Bug {
        name: "session compared by version",
        rule: "P10",
        breaks: &["I4", "I6", "Progress"],
        // The session revision is minus the key's version, and a session key that is gone is put anew.
        texts: &[
            Text {
                file: "seals.rs",
                production: "l.session_revision = revision;",
                faulty: Statements("l.session_revision -= 1;"),
            },
            Text {
                file: "seals.rs",
                production: "l.session_revision = kv.mod_revision",
                faulty: Expression("l.session_revision -= 1"),
            },
            Text {
                file: "seals.rs",
                production: "None if restarted => return self.wiped(now, None),",
                faulty: Before(
                    "None if CHOSEN && !restarted => {
                        l.session_revision = 0;
                        return self.send_seal(now, lease);
                    }",
                ),
            },
            Text {
                file: "tries.rs",
                production: "kv.mod_revision == l.session_revision",
                faulty: Expression("true"),
            },
        ],
    },
    Bug {
        name: "per-name hand-over with groups",
        rule: "P23",
        breaks: &["Truth", "I3", "Progress"],
        // A group at the head of one queue gets that key, holds on to it, and waits for its others.
        texts: &[
            Text {
                file: "deletions.rs",
                production: "self.timers.remove(&(guard_at, Timer::Guard(name.clone())));
                    self.deletions.push_back(Deletion {",
                faulty: Before(
                    "let heir = queue.calls.front().copied().filter(|heir| {
                        self.calls.get(heir).is_some_and(|heir| heir.is_group() && heir.ttl_secs == l.ttl_secs)
                    });
                    if CHOSEN && heir.is_some() && l.state == State::Open {
                        queue.group = heir;
                        queue.slot = Slot::Queued(Queued {
                            lease,
                            created,
                            ready: Some(self.highest),
                        });
                        return Some(lease);
                    }",
                ),
            },
            Text {
                file: "turns.rs",
                production: "Progress { free, .. } if free == all => self.want(now, call, names),",
                faulty: Before(
                    "Progress { free: 1.., queued: 1.., .. } if CHOSEN => {
                        let is_free = |name: &&Key| self.queues.get(*name).is_some_and(|queue| matches!(queue.slot, Slot::Free));
                        let rest: Vec<Key> = names.iter().filter(is_free).cloned().collect();
                        self.want(now, call, rest.into());
                    }
                    Progress { queued, .. } if CHOSEN && queued > 0 && queued < all => {}",
                ),
            },
        ],
    },
    Bug {
        name: "lower keepalive revision taken for a wipe",
        rule: "P35",
        breaks: &["Truth"],
        texts: &[Text {
            file: "renewals.rs",
            production: "Ok(Response::KeptAlive { ttl }) if !ttl.is_zero() => {",
            faulty: Before(
                "Ok(Response::KeptAlive { .. }) if CHOSEN && crate::world::bench::HEADER.get() < self.highest => self.wiped(now, None),",
            ),
        }],
    },
    Bug {
        name: "release deleting by name only",
        rule: "P24",
        breaks: &["I5", "I11"],
        texts: &[Text {
            file: "bundle.rs",
            production: "items
                .iter()
                .map(|d| Compare::CreateRevision { key: d.key.clone(), revision: d.created, })
                .collect()",
            faulty: Expression("Vec::new()"),
        }],
    },
    Bug {
        name: "nested A\u{2192}B beside {A, B}",
        rule: "P38",
        breaks: &["Progress"],
        // The first draft: groups do not deadlock, so nobody looks for circles.
        texts: &[
            Text {
                file: "deadlock.rs",
                production: "while let Some(path) = self.circle_here(call) {",
                faulty: Before("if CHOSEN { return false; }"),
            },
            Text {
                file: "deadlock.rs",
                production: "if c.stage == Stage::Waiting && !c.once && (c.is_group() || !c.outer().is_empty()) {",
                faulty: Before("if CHOSEN { return; }"),
            },
        ],
    },
    Bug {
        name: "retained key deleted at release",
        rule: "P39",
        breaks: &["Retention"],
        texts: &[Text {
            file: "deletions.rs",
            production: "self.retain(now, call, how)",
            faulty: Expression("false"),
        }],
    },
    Bug {
        name: "shutdown before a retained key has a lease of its own",
        rule: "P39",
        breaks: &["Retention"],
        texts: &[Text {
            file: "shutdown.rs",
            production: "self
                .leases
                .values()
                .any(|l| l.bodies > 0 && l.state != State::Lost)",
            faulty: Expression("self.calls.values().any(|c| c.stage == Stage::Holding)"),
        }],
    },
    Bug {
        name: "cycle cut as it was read, unconfirmed",
        rule: "P38",
        breaks: &["Truth"],
        texts: &[Text {
            file: "abort.rs",
            production: "for link in &abort.circle.links {
                let (key, revision) = link.waiting.clone();
                when.push(Compare::CreateRevision { key, revision });
                when.push(Compare::ModRevision {
                    key: link.before.key.clone(),
                    revision: link.before.modified,
                });
                for (key, revision) in link.before.provided() {
                    when.push(Compare::CreateRevision { key, revision });
                }
            }",
            faulty: Statements(""),
        }],
    },
];
