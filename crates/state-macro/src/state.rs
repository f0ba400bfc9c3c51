//! The attribute `#[state]`. Written on the compiler's own token types: a struct with named fields is all that it accepts, and
//! everything else gets an error that says so.

use std::fmt;

use proc_macro::{Delimiter, TokenStream, TokenTree};

/// Objects of a state at most.
const OBJECTS_MAX: usize = 64;

pub(crate) fn generate(krate: &str, arguments: TokenStream, item: TokenStream) -> TokenStream {
    let expanded = if arguments.is_empty() {
        parse(item.clone()).map(|parsed| parsed.expand(krate))
    } else {
        Err(StateError::Arguments)
    };
    match expanded {
        Ok(code) => {
            let mut all = item;
            let generated: TokenStream = code.parse().expect("generated code is well-formed");
            all.extend(generated);
            all
        }
        Err(error) => format!("::core::compile_error!({:?});", error.to_string())
            .parse()
            .expect("an error is well-formed"),
    }
}

struct Parsed {
    visibility: String,
    name: String,
    fields: Vec<(String, String)>,
}

/// Why a struct cannot be a state, as the compiler shows it.
#[derive(Debug)]
enum StateError {
    /// The attribute has arguments.
    Arguments,
    /// The item is no struct with named fields.
    Shape,
    /// A field has no name or no type.
    Field,
    /// There is no field.
    NoObjects,
    /// There are more than [`OBJECTS_MAX`] fields.
    TooManyObjects,
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateError::Arguments => f.write_str("`#[state]` takes no arguments"),
            StateError::Shape => f.write_str(
                "`#[state]` goes on a struct with named fields and no type parameters, each field a state object",
            ),
            StateError::Field => f.write_str("each field of a state is `name: Object`"),
            StateError::NoObjects => f.write_str("a state needs at least one object"),
            StateError::TooManyObjects => write!(f, "a state has at most {OBJECTS_MAX} objects"),
        }
    }
}

fn parse(item: TokenStream) -> Result<Parsed, StateError> {
    let mut tokens = item.into_iter().peekable();
    let mut visibility = String::new();
    loop {
        match tokens.next() {
            Some(TokenTree::Punct(punct)) if punct.as_char() == '#' => {
                tokens.next();
            }
            Some(TokenTree::Ident(word)) if word.to_string() == "pub" => {
                visibility.push_str("pub ");
                if let Some(TokenTree::Group(group)) = tokens.peek()
                    && group.delimiter() == Delimiter::Parenthesis
                {
                    visibility = format!("pub{group} ");
                    tokens.next();
                }
            }
            Some(TokenTree::Ident(word)) if word.to_string() == "struct" => break,
            _ => return Err(StateError::Shape),
        }
    }
    let Some(TokenTree::Ident(name)) = tokens.next() else {
        return Err(StateError::Shape);
    };
    let Some(TokenTree::Group(body)) = tokens.next() else {
        return Err(StateError::Shape);
    };
    if body.delimiter() != Delimiter::Brace {
        return Err(StateError::Shape);
    }
    let fields = parse_fields(body.stream())?;
    if fields.is_empty() {
        return Err(StateError::NoObjects);
    }
    if fields.len() > OBJECTS_MAX {
        return Err(StateError::TooManyObjects);
    }
    Ok(Parsed {
        visibility,
        name: name.to_string(),
        fields,
    })
}

fn parse_fields(body: TokenStream) -> Result<Vec<(String, String)>, StateError> {
    let mut fields = Vec::new();
    let mut tokens = body.into_iter().peekable();
    while tokens.peek().is_some() {
        let mut name = None;
        // Attributes, visibility, then the name before a single colon.
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    tokens.next();
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => break,
                TokenTree::Ident(word) => name = Some(word.to_string()),
                _ => {}
            }
        }
        let mut depth = 0i32;
        let mut kind = String::new();
        for token in tokens.by_ref() {
            if let TokenTree::Punct(punct) = &token {
                match punct.as_char() {
                    '<' => depth += 1,
                    '>' => depth -= 1,
                    ',' if depth == 0 => break,
                    _ => {}
                }
                kind.push(punct.as_char());
                continue;
            }
            kind.push_str(&token.to_string());
            kind.push(' ');
        }
        match name {
            Some(name) if !kind.is_empty() => fields.push((name, kind)),
            _ => return Err(StateError::Field),
        }
    }
    Ok(fields)
}

impl Parsed {
    fn expand(&self, krate: &str) -> String {
        let Self {
            visibility,
            name,
            fields,
        } = self;
        let each = |line: &dyn Fn(usize, &str, &str) -> String| -> String {
            fields
                .iter()
                .enumerate()
                .map(|(number, (field, kind))| line(number, field, kind))
                .collect()
        };
        let names = each(&|_, field, _| format!("{field:?},"));
        let act_fields = each(&|_, field, kind| {
            format!(
                "/// The writes of `{field}`.\n pub {field}: <{kind} as {krate}::Writable>::Act<'a>,"
            )
        });
        let acts =
            each(&|_, field, _| format!("{field}: {krate}::Writable::act(&mut self.{field}),"));
        let visits = each(&|number, field, _| {
            format!("{number}u8 => ::core::option::Option::Some(visit.visit(&mut self.{field})),")
        });
        let looks = each(&|number, field, _| {
            format!("{number}u8 => ::core::option::Option::Some(query.query(&self.{field})),")
        });
        let shared = each(&|number, field, _| {
            format!("{number}u8 => ::core::option::Option::Some(&self.{field}),")
        });
        let exclusive = each(&|number, field, _| {
            format!("{number}u8 => ::core::option::Option::Some(&mut self.{field}),")
        });
        format!(
            "/// The writes of [`{name}`], object by object.
             #[allow(missing_debug_implementations)]
             {visibility} struct {name}Act<'a> {{ {act_fields} }}
             impl {krate}::State for {name} {{
                 const OBJECTS: &'static [&'static str] = &[{names}];
                 type Act<'a> = {name}Act<'a>;
                 #[inline(always)]
                 fn act(&mut self) -> {name}Act<'_> {{ {name}Act {{ {acts} }} }}
                 #[inline(always)]
                 fn with<T>(&mut self, object: u8, visit: impl {krate}::ObjectVisitor<T>) -> ::core::option::Option<T> {{
                     match object {{ {visits} _ => ::core::option::Option::None }}
                 }}
                 #[inline(always)]
                 fn query<T>(&self, object: u8, query: impl {krate}::ObjectQuery<T>) -> ::core::option::Option<T> {{
                     match object {{ {looks} _ => ::core::option::Option::None }}
                 }}
                 fn object(&self, object: u8) -> ::core::option::Option<&dyn {krate}::Object> {{
                     match object {{ {shared} _ => ::core::option::Option::None }}
                 }}
                 fn object_mut(&mut self, object: u8) -> ::core::option::Option<&mut dyn {krate}::Object> {{
                     match object {{ {exclusive} _ => ::core::option::Option::None }}
                 }}
             }}"
        )
    }
}
