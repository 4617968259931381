//! A client that openapi-python-client generates from `/openapi.json` is used.

use crate::support::{Server, python};
use std::fs;
use std::process::Command;

#[test]
fn a_client_generated_from_the_openapi_document_works() {
    let server = Server::start("memory:", &[]);
    let directory = tempfile::tempdir().unwrap();
    let path = format!("{}:/usr/bin:/bin", python("python3").parent().unwrap().display());
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(python(program));
        command.args(arguments).current_dir(directory.path()).env("PATH", &path);
        let output = command.output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program}: {said}");
        said
    };
    fs::write(directory.path().join("openapi.json"), server.client().get("/openapi.json").body).unwrap();
    let source = ["generate", "--path", "openapi.json", "--meta", "none", "--output-path", "generated"];
    let said = run("openapi-python-client", &source);
    // It knows no lines of JSON.
    let parts: Vec<&str> = said.lines().filter(|line| line.starts_with("WARNING")).collect();
    assert_eq!(
        parts,
        ["WARNING parsing POST /batch within default. Endpoint will not be generated."],
        "{said}"
    );
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/generated.py");
    fs::copy(script, directory.path().join("use.py")).unwrap();
    run("python3", &["use.py", &format!("http://{}", server.address)]);
}
