//! What a person reads: version, help, and errors that say what is wrong.

use super::process::{aquifer, output, stderr, stdout};

#[test]
fn version_names_the_program_and_its_version() {
    let printed = output(&["version"]);
    assert!(printed.status.success());
    assert!(
        stdout(&printed).starts_with(&format!("aquifer {}", env!("CARGO_PKG_VERSION"))),
        "{}",
        stdout(&printed)
    );
    assert_eq!(stdout(&output(&["--version"])), format!("aquifer {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn help_names_every_command_in_few_lines() {
    let printed = output(&["--help"]);
    assert!(printed.status.success());
    let text = stdout(&printed);
    for command in ["install", "uninstall", "run", "crds", "version", "completions", "efs"] {
        assert!(
            text.lines().any(|line| line.trim_start().starts_with(&format!("{command} "))),
            "{command} in\n{text}"
        );
    }
    assert!(text.lines().count() < 20, "{text}");
    assert!(stdout(&output(&["efs", "--help"])).contains("uninstall"));
}

#[test]
fn the_help_of_run() {
    insta::assert_snapshot!(stdout(&output(&["run", "--help"])));
}

#[test]
fn every_flag_has_an_environment_variable_and_fits_the_screen() {
    for command in [
        &["run", "--help"][..],
        &["efs", "uninstall", "--help"],
        &["install", "--help"],
        &["uninstall", "--help"],
        &["version", "--help"],
    ] {
        let text = stdout(&output(command));
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
        // Each flag with all that is said about it.
        let flags: Vec<&str> = text.split("\n      --").skip(1).collect();
        assert!(flags.len() >= 3, "{text}");
        for said in flags {
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(said.contains("[env: AQUIFER_"), "no variable for a flag of {command:?}: --{said}");
        }
    }
}

#[test]
fn variables_work_like_flags() {
    let run = aquifer().arg("run").env("AQUIFER_EFS_TOLERATIONS", "a:Sometimes").output().unwrap();
    assert!(!run.status.success());
    assert!(
        stderr(&run).contains("--efs-tolerations") && stderr(&run).contains("a:Sometimes"),
        "{}",
        stderr(&run)
    );
}

/// Each is read, because a wrong value is refused, and none is shown.
#[test]
fn old_names_of_flags_and_variables_still_work() {
    let help = stdout(&output(&["run", "--help"]));
    for (flag, variable) in [("controllers", "AQUIFER_CONTROLLERS"), ("efs-statics", "AQUIFER_EFS_STATICS")] {
        let by_flag = output(&["run", &format!("--{flag}"), "wrong"]);
        let by_variable = aquifer().arg("run").env(variable, "wrong").output().unwrap();
        for run in [by_flag, by_variable] {
            assert!(!run.status.success());
            assert!(stderr(&run).contains(&format!("'wrong' for '--{flag}")), "{}", stderr(&run));
        }
        assert!(!help.contains(flag) && !help.contains(variable), "{help}");
    }
}

#[test]
fn bad_flags_say_what_is_wrong_with_them() {
    let cases: [(&[&str], &[&str]); 19] = [
        (&["run", "--http-listen", "here"], &["here", "--http-listen", "socket address"]),
        (
            &["run", "--metrics-listen", "0.0.0.0:8080"],
            &["--http-listen", "--metrics-listen", "of their own"],
        ),
        (&["run", "--max-watch-silence", "1m"], &["1m", "--max-watch-silence", "at least 2m"]),
        (&["run", "--families", "nfs"], &["nfs", "--families", "efs"]),
        (&["run", "--efs-driver", "maybe"], &["maybe", "managed", "external"]),
        (&["run", "--lease-duration", "soon"], &["soon", "--lease-duration", "10s"]),
        (&["run", "--lease-duration", "3s"], &["--lease-renew-deadline", "1.25 times"]),
        (&["crds", "--families", "nfs"], &["nfs", "--families", "efs"]),
        (&["run", "--efs-node-selector", "pool"], &["--efs-node-selector", "pool", "key=value"]),
        (&["run", "--efs-tolerations", "x:Never"], &["--efs-tolerations", "x:Never", "NoSchedule"]),
        (&["run", "--log-level", "=,="], &["--log-level", "for example"]),
        (&["run", "--log-level", "verbose"], &["--log-level", "verbose", "not a level", "for example"]),
        (&["install", "--image", ""], &["--image", "registry.example"]),
        (&["run", "--kubeconfig", "/does/not/exist"], &["/does/not/exist", "cannot read"]),
        (&["run", "--nonsense"], &["--nonsense"]),
        (&["efs", "uninstall", "--timeout", "soon"], &["soon", "--timeout"]),
        (&["install", "--namespace", "Here"], &["Here", "--namespace", "a-z"]),
        (&["install", "--replicas", "11"], &["11", "--replicas", "0..=10"]),
        (&["install", "--families", "nfs"], &["nfs", "--families", "efs"]),
    ];
    for (arguments, words) in cases {
        let run = output(arguments);
        assert!(!run.status.success(), "{arguments:?}");
        let said = stderr(&run);
        for word in words {
            assert!(said.contains(word), "{arguments:?} does not say {word}:\n{said}");
        }
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[test]
fn crds_are_one_yaml_stream() {
    let printed = output(&["crds"]);
    assert!(printed.status.success());
    let text = stdout(&printed);
    assert!(text.starts_with("---\n"), "{text}");
    assert_eq!(text.matches("kind: CustomResourceDefinition").count(), text.matches("\n---\n").count() + 1);
    assert_eq!(stdout(&output(&["crds", "--families", "efs"])), text, "there is one family");
}
