//! Seeded test: about 200,000 inputs, most of them nearly right, cause no panic. An input that fails once fails in every run.

use proc_macro2::TokenStream;
use quote::quote;

use crate::overlap::{overlap, segments};
use crate::template::Template;

/// Pieces of templates, and of texts that are nearly templates. A `|` stands between two of them.
const PIECES: &str = "orders|a|/|/|//|<id>|<id: u64>|<|>|<>|:|: |.|..|self|r#type|type|<a.b>|<a.0>|\
    Cow<'_, str>|&'a str|str|&str|{id}|{|}|%| |\"|\\|\n|ü|🔒|\0|-|5|<x: Vec<Vec<u8>>>|<_>|<Self>";

/// Pieces of an attribute, a block of declarations and a type to derive for. Brackets come in pairs, as rustc passes them.
const TOKENS: &str = r##""orders/<id>"  "a"  "a/<x: u8>"  "5s"  r"raw"  b"bytes"  'c'  5  1.5
    ,  ,  =  =  ==  =>  ;  ;  :  ::  .  ..  &  |  <  >  ->  !  ?  #  $  'a  -  *
    wait  ttl  max_hold  min_hold  wait_until  when  detach  reentrant  proof  on_held  on_lost  release
    map_err  on_error  locks  crate  shared  permits  wiat  id  Order  r#type  _  self
    pub  struct  enum  union  fn  async  move  impl  dyn  Future  Pin  Box  pin  u64  str
    where  for  mut  ref  const  unsafe  extern  (id)  (id: u64)  (&self, id: u64)  {}  { id }  { Ok(()) }
    [u8; 4]  (crate)  [derive(Clone)]  [cfg(x)]  pub Order = "orders/<id: u64>";  wait = "5s"
    async fn f(id: u64) -> Result<(), E> { Ok(()) }"##;

/// Options of an attribute, most of them valid.
const OPTIONS: &str = r#"wait = "none"  wait = "forever"  wait = "5s"  wait = n  ttl = "2s"  ttl = "1s"  ttl = n
    max_hold = "5s"  max_hold = n  min_hold = "1s"  min_hold = n  wait_until = due  when = id == 5  detach  reentrant
    on_held = "skip"  on_lost = "continue"  release = "background"  release = "later"  shared
    permits = 5  permits = n  permits = -1  permits = "5"  permits = 5u8  proof = order  proof = (a, _)
    map_err = f  on_error = f  locks = &l  crate = crate::l  crate = "l"  crate = super::l  unlocked"#;

/// Functions, of which the first half can take the lock.
const FUNCTIONS: &str = r"async fn f(id: u64, a: A) -> Result<(), E> { Ok(()) }
    async fn f(Path(id): Path<u64>, a: &A) {}
    fn f(id: u64) -> Pin<Box<dyn Future<Output = impl Sized> + Send>> { Box::pin(async move { let id = id; 5 }) }
    fn f(id: u64) -> impl Future<Output = u8> { async move { 5 } }
    async fn f(&self, id: u64, shared: u8) {}
    fn f(id: u64) -> impl Future<Output = u8> { async { 5 } }
    fn f(id: u64) {}
    const fn f(id: u64) {}
    extern fn f(id: u64) {}
    async fn f(id: u64) -> ! {}
    async fn f(id: u64);";

/// Items of an `impl` block.
const ITEMS: &str = r#"const N: u8 = 5;  m!();  #[etcd_locked(unlocked)] m!();  fn g(&self) {}  fn g() {}
    #[etcd_locked] async fn g(&self) {}  #[etcd_locked(unlocked)] fn g(&self) {}  #[etcd_locked(shared)] async fn g(&self) {}
    #[etcd_locked(unlokced)] fn g(&self) {}  #[etcd_locked(unlocked, shared)] fn g(&self) {}  #[etcd_locked = "a"] fn g(&self) {}
    #[etcd_locked(permits = 5)] #[etcd_locked("a")] async fn g(&self) {}  async fn g(&self, x: ) {}  #![allow(unused)]"#;

/// Random numbers by xorshift64*, which is good enough here.
struct Seed(u64);

impl Seed {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(high).unwrap_or(0) % limit
    }

    fn text(&mut self, pieces: &[&str], most: usize, between: &str) -> String {
        let count = self.below(most);
        let pieces: Vec<_> = (0..count).map(|_| pieces[self.below(pieces.len())]).collect();
        pieces.join(between)
    }

    /// Makes tokens that lex; other text never reaches a macro.
    fn tokens(&mut self, tokens: &[&str]) -> TokenStream {
        loop {
            if let Ok(tokens) = self.text(tokens, 9, " ").parse() {
                return tokens;
            }
        }
    }
}

fn split(pieces: &'static str, between: &str) -> Vec<&'static str> {
    pieces.split(between).collect()
}

#[test]
fn no_template_panics() {
    let (mut seed, pieces) = (Seed(4), split(PIECES, "|"));
    let mut good = Vec::new();
    for n in 0..100_000 {
        let text = seed.text(&pieces, 8, "");
        let template = Template::parse(&text);
        for mistake in &template.mistakes {
            assert!(text.get(mistake.range.clone()).is_some(), "{text:?}: {mistake:?}");
            assert!(!mistake.message.is_empty());
        }
        let typed = Template::parse_typed(&text);
        for placeholder in &typed.placeholders {
            assert!(text[placeholder.range.clone()].starts_with('<'), "{text:?}: {placeholder:?}");
        }
        if typed.mistakes.is_empty() {
            assert!(Template::parse(&typed.untyped(&text)).mistakes.is_empty(), "{text:?}");
            let segments = segments(&text, &typed);
            assert!(overlap(&segments, &segments).is_some(), "{text:?} is itself");
            good.push(segments);
        }
        if let [.., one, other] = &good[..] {
            assert_eq!(overlap(one, other).is_some(), overlap(other, one).is_some(), "{n}");
        }
    }
    assert!(good.len() > 3_000, "only {} of them were templates", good.len());
}

#[test]
fn no_attribute_panics() {
    let (mut seed, pieces, tokens) = (Seed(5), split(PIECES, "|"), split(TOKENS, "  "));
    let (options, functions) = (split(OPTIONS, "  "), split(FUNCTIONS, "\n"));
    let items = split(ITEMS, "  ");
    let mut good = 0;
    for n in 0..50_000 {
        let args = match n % 3 {
            0 => seed.tokens(&tokens),
            1 => {
                let options = seed.text(&options, 5, ",");
                format!("\"orders/<id>\", {options}").parse().expect("tokens")
            }
            _ => {
                let text = seed.text(&pieces, 6, "");
                quote!(#text, wait = "5s")
            }
        };
        let item = match n % 4 {
            0 => seed.tokens(&tokens),
            _ => functions[seed.below(functions.len())].parse().expect("tokens"),
        };
        if n % 8 == 0 {
            let (defaults, more) = (seed.tokens(&options), seed.tokens(&items));
            let defaults = quote!("accounts/<self.id>", #defaults);
            let block =
                quote!(impl A { #[etcd_locked(#args)] async fn g(&self, id: u64) {} #more });
            let block = crate::block::Block::of(&block).expect("an impl block");
            drop(block.expand(defaults));
        }
        good += usize::from(crate::locked(args, &item).is_ok());
    }
    assert!(good > 3_000, "only {good} were good");
}

#[test]
fn no_declaration_and_no_derived_type_panics() {
    let (mut seed, pieces, tokens) = (Seed(6), split(PIECES, "|"), split(TOKENS, "  "));
    for _ in 0..25_000 {
        let (any, after) = (seed.tokens(&tokens), seed.tokens(&tokens));
        let text = seed.text(&pieces, 6, "");
        drop(crate::names::declare(
            quote!(krate; #any A = #text; #after pub B = "b/<x: &str>/<c: Cow<str>>";),
        ));
        let (fields, variants) = (seed.tokens(&tokens), seed.tokens(&tokens));
        drop(crate::key::derive(quote!(#any struct A<T>(T #fields);)));
        drop(crate::key::derive(quote!(#[lock_key(#any)] enum A { B, #variants })));
        drop(crate::key::derive(quote!(#any union A { #fields })));
    }
}
