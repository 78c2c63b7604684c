//! Seeded test: some 200,000 inputs, most of them nearly right, cause no panic. An input that fails once fails again.

use proc_macro2::TokenStream;
use quote::quote;

use crate::overlap::{overlap, segments};
use crate::template::Template;

/// Pieces of templates, and of texts that are nearly templates. A `|` stands between two of them.
const PIECES: &str = "orders|a|/|/|//|<id>|<id: u64>|<|>|<>|:|: |.|..|self|r#type|type|<a.b>|<a.0>|\
    Cow<'_, str>|&'a str|&str|{id}|{|}|%| |\"|\\|\n|ü|🔒|\0|-|5|<x: Vec<Vec<u8>>>|<_>|<Self>";

/// Pieces of an attribute, a block of declarations and a type to derive for. Brackets come in pairs, as from rustc.
const TOKENS: &str = r##""orders/<id>"  "a"  "a/<x: u8>"  "5s"  r"raw"  b"bytes"  'c'  5  1.5
    ,  ,  =  =  ==  =>  ;  ;  :  ::  .  ..  &  |  <  >  ->  !  ?  #  $  'a  -  *
    wait  ttl  at_most  at_least  deadline  when  detach  reentrant  guard  on_held  on_lost  release
    map_err  on_error  locks  crate  shared  permits  wiat  id  Order  r#type  _  self
    pub  struct  enum  union  fn  async  move  impl  dyn  Future  Pin  Box  pin  u64  str
    where  for  mut  ref  const  unsafe  extern  (id)  (id: u64)  (&self, id: u64)  {}  { id }  { Ok(()) }
    [u8; 4]  (crate)  [derive(Clone)]  [cfg(x)]  pub Order = "orders/<id: u64>";  wait = "5s"
    async fn f(id: u64) -> Result<(), E> { Ok(()) }"##;

/// Random numbers by xorshift64*, which is good enough here, and what is made of them.
struct Seed {
    state: u64,
    pieces: Vec<&'static str>,
    tokens: Vec<&'static str>,
}

impl Seed {
    fn new(state: u64) -> Self {
        let (pieces, tokens) = (PIECES.split('|').collect(), TOKENS.split("  ").collect());
        Self { state, pieces, tokens }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let high = self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(high).unwrap_or(0) % limit
    }

    fn text(&mut self, most: usize) -> String {
        let count = self.below(most);
        let piece = |_| {
            let at = self.below(self.pieces.len());
            self.pieces[at]
        };
        (0..count).map(piece).collect()
    }

    /// Makes tokens that lex; other text never reaches a macro.
    fn tokens(&mut self) -> TokenStream {
        loop {
            let count = self.below(9);
            let token = |_| {
                let at = self.below(self.tokens.len());
                self.tokens[at]
            };
            if let Ok(tokens) = (0..count).map(token).collect::<Vec<_>>().join(" ").parse() {
                return tokens;
            }
        }
    }
}

#[test]
fn no_template_panics() {
    let mut seed = Seed::new(4);
    let mut good = Vec::new();
    for n in 0..100_000 {
        let text = seed.text(8);
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
    let mut seed = Seed::new(5);
    let mut good = 0;
    for n in 0..50_000 {
        let args = match n % 3 {
            0 => seed.tokens(),
            1 => {
                let tokens = seed.tokens();
                quote!("orders/<id>", #tokens)
            }
            _ => {
                let text = seed.text(6);
                quote!(#text, wait = "5s")
            }
        };
        let item = match n % 4 {
            0 => seed.tokens(),
            _ => quote!(
                async fn ship(id: u64, a: A) -> Result<(), E> {
                    Ok(())
                }
            ),
        };
        if n % 8 == 0 {
            let (any, more) = (seed.tokens(), seed.tokens());
            let block = quote!(impl A { #any async fn f(&self) {} #[etcd_locked(#args)] #more });
            let block = crate::block::Block::of(&block).expect("an impl block");
            drop(block.expand(args.clone()));
        }
        good += usize::from(crate::locked(args, &item).is_ok());
    }
    assert!(good > 300, "only {good} were good");
}

#[test]
fn no_declaration_and_no_derived_type_panics() {
    let mut seed = Seed::new(6);
    for _ in 0..25_000 {
        let (any, after) = (seed.tokens(), seed.tokens());
        let text = seed.text(6);
        drop(crate::names::declare(quote!(krate; #any A = #text; #after pub B = "b";)));
        let (fields, variants) = (seed.tokens(), seed.tokens());
        drop(crate::key::derive(quote!(#any struct A(#fields);)));
        drop(crate::key::derive(quote!(enum A { #variants })));
    }
}
