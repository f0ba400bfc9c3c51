//! Routes and document are equal both ways, and the document is the committed one.

use asterism_api::server::document;
use asterism_api::testing::Exchange;
use serde_json::Value;

use crate::start::Started;

const METHODS: [&str; 6] = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];

/// The routes that the issue asks for.
const ROUTES: [(&str, &str); 20] = [
    ("GET", "/metrics"),
    ("GET", "/v1/cluster"),
    ("GET", "/v1/events"),
    ("GET", "/v1/events/stream"),
    ("GET", "/v1/flows"),
    ("GET", "/v1/health"),
    ("GET", "/v1/hosts"),
    ("GET", "/v1/hosts/{name}"),
    ("GET", "/v1/hosts/{name}/status"),
    ("GET", "/v1/openapi.json"),
    ("GET", "/v1/plan"),
    ("GET", "/v1/state"),
    ("GET", "/v1/state/{object}"),
    ("GET", "/v1/usage"),
    ("POST", "/v1/hosts/{name}/drain"),
    ("POST", "/v1/hosts/{name}/fence"),
    ("POST", "/v1/hosts/{name}/forget"),
    ("POST", "/v1/hosts/{name}/restore"),
    ("POST", "/v1/moves"),
    ("POST", "/v1/scale"),
];

fn documented() -> Vec<(String, String)> {
    let api: Value = serde_json::from_str(&document()).unwrap();
    let mut routes = Vec::new();
    for (path, item) in api["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            routes.push((method.to_ascii_uppercase(), path.clone()));
        }
    }
    routes.sort();
    routes
}

#[test]
fn the_document_has_the_routes_that_are_promised() {
    let promised = ROUTES.map(|(method, path)| (method.to_owned(), path.to_owned()));
    assert_eq!(documented(), promised);
}

/// Served and not documented: no method of a documented path. Documented and not served: none.
#[test]
fn the_server_serves_what_is_documented_and_no_other_method() {
    let started = Started::open(|config| {
        config.limits.requests_per_second_of_address = 100_000;
        config.limits.requests_per_second_of_caller = 100_000;
    });
    let documented = documented();
    let mut paths: Vec<&String> = documented.iter().map(|(_, path)| path).collect();
    paths.dedup();
    for path in paths {
        for method in METHODS {
            let target = path
                .replace("{name}", "blue-1")
                .replace("{object}", "sessions");
            let answer = Exchange::new(method, &target)
                .send(started.local())
                .unwrap();
            let is_documented = documented.contains(&(method.to_owned(), path.clone()));
            // An order without a body is refused by its handler, so the route is there.
            let is_served = answer.status == 200 || method == "POST" && answer.status == 415;
            let is_not = answer.status == 405;
            assert_eq!(
                (is_served, is_not),
                (is_documented, !is_documented),
                "{method} {path}: {answer:?}"
            );
        }
    }
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/v1/host",
        "/v1/hosts/",
        "/v1/hosts/a/b",
        "/v2/cluster",
        "/docs",
    ] {
        let answer = Exchange::new("GET", path).send(started.local()).unwrap();
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json")
        );
    }
}

/// The other way: the only calls that could add a route without the document are in no file of the server.
#[test]
fn routes_are_made_by_the_documents_macro_alone() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/server");
    let mut macros = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        macros += text.matches(".routes(routes!(").count();
        for call in [
            ".route(",
            ".route_service(",
            ".nest(",
            ".nest_service(",
            ".merge(",
            ".fallback_service(",
        ] {
            assert!(!text.contains(call), "{}: {call}", path.display());
        }
    }
    assert_eq!(macros, ROUTES.len());
}

#[test]
fn the_committed_document_is_the_one_that_is_served() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    let made = document();
    if std::env::var_os("ASTERISM_BLESS").is_some() {
        std::fs::write(path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == made,
        "crates/api/openapi.json differs from the routes; run ASTERISM_BLESS=1 cargo test -p asterism-api"
    );
    let started = Started::open(|_| ());
    let answer = Exchange::new("GET", "/v1/openapi.json")
        .send(started.local())
        .unwrap();
    assert_eq!(answer.body, made);
}

/// What tools need of a document: every reference has its target, every operation a name of its own, every parameter of a path a value.
#[test]
fn the_document_is_whole() {
    let text = document();
    let api: Value = serde_json::from_str(&text).unwrap();
    assert!(api["openapi"].as_str().unwrap().starts_with("3.1"));
    for part in text.split("\"$ref\": \"#").skip(1) {
        let pointer = part.split('"').next().unwrap();
        assert!(api.pointer(pointer).is_some(), "{pointer}");
    }
    let mut names = Vec::new();
    for (path, item) in api["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            names.push(operation["operationId"].as_str().unwrap().to_owned());
            let problem = &operation["responses"]["default"]["content"]["application/problem+json"];
            assert_eq!(
                problem["schema"]["$ref"], "#/components/schemas/Problem",
                "{method} {path}"
            );
            let parameters = operation["parameters"].as_array();
            let in_path = parameters
                .into_iter()
                .flatten()
                .filter(|one| one["in"] == "path");
            assert_eq!(
                in_path.count(),
                path.matches('{').count(),
                "{method} {path}"
            );
        }
    }
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all);
    assert_eq!(
        api["components"]["securitySchemes"]["token"]["scheme"],
        "bearer"
    );
    assert_eq!(api["security"][0]["token"], Value::Array(Vec::new()));
}
