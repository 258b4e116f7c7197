//! The image that Rook's operator and all daemons of Ceph run from, built once and cached. Imports it nowhere.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::nodes::host;
use crate::programs::source_dir;
use crate::recipe::{self, ARCHIVE, Image, NOWHERE, REGISTRY};

/// The Debian that has the release of Ceph which this lab is about.
const DEBIAN: &str = "trixie";

/// What else the machine needs for it.
pub const TOOLS: [host::Tool; 2] = [
    host::Tool { program: "mmdebstrap", package: "mmdebstrap", why: "makes the root of the Ceph image" },
    host::Tool { program: "losetup", package: "mount", why: "makes disks for Ceph out of files" },
];

/// Finds the image, or builds it from Debian's packages and Rook's Go module, which takes minutes. Blocks.
pub fn find() -> Result<Image> {
    host::check_for("Ceph", &TOOLS)?;
    let source = source_dir("ceph");
    let rook = source_dir("rook");
    let packages = std::fs::read_to_string(source.join("packages")).context("the recipe has no packages")?;
    let packages: Vec<&str> = packages.split_whitespace().collect();
    let nowhere = Path::new(NOWHERE);
    let arguments =
        [recipe::image_key_part(&rook), debian_arguments(&packages, nowhere, nowhere, nowhere)].concat();
    let key = recipe::key_of(&[&source, &rook], &arguments)?;
    let name = format!("{REGISTRY}/rook-ceph:{key}");
    let program = recipe::program("rook")?;
    let what = "building the image of Rook and Ceph from Debian's packages";
    let dir = recipe::once(&format!("image-rook-ceph-{key}"), what, |dir, work| {
        let context = work.dir()?;
        // One layer: each more would cost a copy of the whole.
        let mut debian = Command::new("mmdebstrap");
        let tar = context.path().join("root.tar");
        debian.args(debian_arguments(&packages, &program, &source.join("customize.sh"), &tar));
        work.run(&mut debian)?;
        work.buildah(&source.join("Containerfile"), context.path(), &name, &dir.join(ARCHIVE))
    })?;
    Ok(Image { name, archive: dir.join(ARCHIVE) })
}

/// The arguments with which mmdebstrap makes a root file system with a program in it.
fn debian_arguments(packages: &[&str], program: &Path, customize: &Path, root: &Path) -> Vec<OsString> {
    let mut arguments = vec![
        "--mode=root".to_owned(),
        "--variant=apt".to_owned(),
        "--aptopt=APT::Install-Recommends \"false\"".to_owned(),
    ];
    for unwanted in ["man", "doc", "locale"] {
        arguments.push(format!("--dpkgopt=path-exclude=/usr/share/{unwanted}/*"));
    }
    arguments.push(format!("--include={}", packages.join(",")));
    arguments.push(format!("--customize-hook=copy-in '{}' /usr/local/bin", program.display()));
    arguments.push(format!("--customize-hook='{}' \"$1\"", customize.display()));
    arguments.push(DEBIAN.to_owned());
    let mut arguments: Vec<OsString> = arguments.into_iter().map(OsString::from).collect();
    arguments.push(root.into());
    arguments
}
