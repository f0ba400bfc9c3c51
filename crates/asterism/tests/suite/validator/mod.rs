//! Documents against their schemas in `schemas/`. Knows the few words of JSON Schema that the schemas use, and refuses a schema
//! with any other.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// Whether a value has the type of this name.
fn is_of(value: &Value, name: &Value) -> bool {
    match name.as_str().expect("a type has a name") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("unknown type {other}"),
    }
}

/// What is wrong with a value, by the schema.
pub(crate) fn check(schema: &Value, value: &Value, place: &str, wrong: &mut Vec<String>) {
    for (word, said) in schema.as_object().expect("a schema is an object") {
        let good = match word.as_str() {
            "$schema" | "title" | "description" => true,
            "const" => value == said,
            "enum" => said.as_array().unwrap().contains(value),
            "type" => match said {
                Value::Array(types) => types.iter().any(|one| is_of(value, one)),
                one => is_of(value, one),
            },
            "required" => said
                .as_array()
                .unwrap()
                .iter()
                .all(|name| value.get(name.as_str().unwrap()).is_some()),
            "properties" => {
                for (name, inner) in said.as_object().unwrap() {
                    if let Some(value) = value.get(name) {
                        check(inner, value, &format!("{place}.{name}"), wrong);
                    }
                }
                true
            }
            "additionalProperties" => {
                let known = schema.get("properties").and_then(Value::as_object);
                for (name, value) in value.as_object().into_iter().flatten() {
                    if known.is_some_and(|known| known.contains_key(name)) {
                        continue;
                    }
                    match said {
                        Value::Bool(false) => {
                            wrong.push(format!("{place}.{name} is not in the schema"))
                        }
                        inner => check(inner, value, &format!("{place}.{name}"), wrong),
                    }
                }
                true
            }
            "items" => {
                for (number, value) in value.as_array().into_iter().flatten().enumerate() {
                    check(said, value, &format!("{place}[{number}]"), wrong);
                }
                true
            }
            other => panic!("the validator does not know `{other}`"),
        };
        if !good {
            wrong.push(format!("{place}: {value} against {word} {said}"));
        }
    }
}

pub(crate) fn validate(document: &Value) {
    let schema = &document["schema"];
    let name = schema["name"]
        .as_str()
        .expect("a document names its schema");
    let version = schema["version"]
        .as_u64()
        .expect("a document has a version");
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("schemas/{name}.v{version}.json"));
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut wrong = Vec::new();
    check(
        &serde_json::from_str(&text).unwrap(),
        document,
        name,
        &mut wrong,
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
