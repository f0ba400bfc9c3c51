//! The OpenAPI document: what the routes say of themselves, and what holds for all of them.

use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, OpenApi, Ref, ResponseBuilder,
};
use utoipa::{PartialSchema, ToSchema};

use super::routes::routes;
use crate::data::Problem;

/// The OpenAPI document of all routes, as it is committed in `crates/api/openapi.json` and served at `/v1/openapi.json`.
#[must_use]
pub fn document() -> String {
    // The document has keys and values that JSON has; a failure would be a bug of a dependency.
    let text = open_api().to_pretty_json().unwrap_or_default();
    format!("{text}\n")
}

fn open_api() -> OpenApi {
    let mut api = routes().into_openapi();
    api.info = InfoBuilder::new()
        .title("Asterism")
        .version("1")
        .description(Some(
            "The orchestrator of a cluster. Errors are problem documents (RFC 9457). See docs/src/api.md.",
        ))
        .license(None)
        .build();
    let mut components = api
        .components
        .take()
        .unwrap_or_else(|| ComponentsBuilder::new().build());
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("token", SecurityScheme::Http(bearer));
    let problem = Problem::name().into_owned();
    components
        .schemas
        .insert(problem.clone(), Problem::schema());
    api.components = Some(components);
    api.security = Some(vec![SecurityRequirement::new(
        "token",
        Vec::<String>::new(),
    )]);
    for item in api.paths.paths.values_mut() {
        for operation in [&mut item.get, &mut item.post].into_iter().flatten() {
            let content = ContentBuilder::new()
                .schema(Some(Ref::from_schema_name(problem.clone())))
                .build();
            let refused = ResponseBuilder::new()
                .description("Why there is no other answer")
                .content("application/problem+json", content)
                .build();
            let responses = &mut operation.responses.responses;
            responses.insert("default".to_owned(), refused.into());
        }
    }
    api
}
