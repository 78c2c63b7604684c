//! Nothing to build: cargo wants a script with the key `links`, by which it refuses a second version of this crate in a binary.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
