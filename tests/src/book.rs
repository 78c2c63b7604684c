//! Examples of the book and of the READMEs, compiled and run. Blocks with `test_harness` are compiled as tests, and their tests run.

#[doc = include_str!("../../README.md")]
struct Readme;

#[doc = include_str!("../../embedded/README.md")]
#[doc = include_str!("../../macros/README.md")]
#[doc = include_str!("../../runtime/README.md")]
struct ReadmesOfPackages;

#[doc = include_str!("../../book/src/introduction.md")]
struct Introduction;

#[doc = include_str!("../../book/src/getting-started.md")]
struct GettingStarted;

#[doc = include_str!("../../book/src/names.md")]
struct Names;

#[doc = include_str!("../../book/src/options.md")]
struct Options;

#[doc = include_str!("../../book/src/timeouts.md")]
struct Timeouts;

#[doc = include_str!("../../book/src/fencing.md")]
struct Fencing;

#[doc = include_str!("../../book/src/testing.md")]
struct Testing;

#[doc = include_str!("../../book/src/deploying.md")]
struct Deploying;

#[doc = include_str!("../../book/src/operating.md")]
struct Operating;

#[doc = include_str!("../../book/src/coming-from/shedlock.md")]
struct ShedLock;

#[doc = include_str!("../../book/src/coming-from/redisson.md")]
struct Redisson;

#[doc = include_str!("../../book/src/coming-from/go.md")]
struct Go;

#[doc = include_str!("../../book/src/coming-from/etcd-client.md")]
struct EtcdClient;

#[doc = include_str!("../../book/src/coming-from/advisory-locks.md")]
struct AdvisoryLocks;

#[doc = include_str!("../../book/src/evidence.md")]
struct Evidence;
