//! `/openapi.json` says what the server does: a client that makes requests of it gets no answer that is not in it.

use crate::support::{Server, is_long, python};
use std::process::Command;

/// What Schemathesis needs to write lines of JSON.
const HOOKS: &str = "
import json
import schemathesis

@schemathesis.serializer('application/x-ndjson')
def lines(ctx, value):
    if isinstance(value, (list, tuple)):
        return ''.join(json.dumps(item) + '\\n' for item in value).encode('utf-8', 'surrogatepass')
    return value if isinstance(value, bytes) else json.dumps(value).encode()

@schemathesis.deserializer('application/x-ndjson')
def read(ctx, response):
    return response.text

# Nobody waits for minutes here.
@schemathesis.hook
def before_load_schema(context, raw_schema):
    raw_schema['components']['parameters']['Prefer']['schema']['pattern'] = '^wait=[01]$'
";

/// What is checked. Not that whatever fits the schemas is accepted, as preconditions may contradict each other; nor that all else
/// is refused: a wrong line of a batch is answered in its place.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
    response_schema_conformance,unsupported_method,missing_required_header";

#[test]
fn no_answer_is_missing_in_the_openapi_document() {
    let server = Server::start("memory:", &[]);
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("hooks.py"), HOOKS).unwrap();
    let examples = if is_long() { "1800" } else { "30" };
    let output = Command::new(python("st"))
        .args(["run", &format!("http://{}/openapi.json", server.address), "--checks", CHECKS, "--seed", "1"])
        .args(["--phases", "examples,coverage,fuzzing", "--max-examples", examples, "--continue-on-failure"])
        // It does not end.
        .args(["--exclude-path", "/watch"])
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("PYTHONPATH", directory.path())
        .current_dir(directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let generated = said.lines().find_map(|line| {
        line.trim().strip_suffix(" passed")?.split(' ').next()?.replace(',', "").parse().ok()
    });
    let generated: u64 = generated.unwrap_or_else(|| panic!("{said}"));
    assert!(generated >= if is_long() { 10_000 } else { 200 }, "{said}");
}
