//! The image that Rook's operator and all daemons of Ceph run from, built once and cached. Imports it nowhere.

use std::process::Command;

use anyhow::{Context, Result};

use crate::nodes::host;
use crate::programs::source_dir;
use crate::recipe::{self, ARCHIVE, Image, REGISTRY};

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
    let key = recipe::key_of(&[&source, &rook])?;
    let name = format!("{REGISTRY}/rook-ceph:{key}");
    let program = recipe::program("rook")?;
    let packages = std::fs::read_to_string(source.join("packages")).context("the recipe has no packages")?;
    let packages: Vec<&str> = packages.split_whitespace().collect();
    let what = "building the image of Rook and Ceph from Debian's packages";
    let dir = recipe::once(&format!("image-rook-ceph-{key}"), what, |dir, work| {
        let context = work.dir()?;
        // One layer: each more would cost a copy of the whole.
        let mut debian = Command::new("mmdebstrap");
        debian.args(["--mode=root", "--variant=apt", "--aptopt=APT::Install-Recommends \"false\""]);
        for unwanted in ["man", "doc", "locale"] {
            debian.arg(format!("--dpkgopt=path-exclude=/usr/share/{unwanted}/*"));
        }
        debian.arg(format!("--include={}", packages.join(",")));
        debian.arg(format!("--customize-hook=copy-in '{}' /usr/local/bin", program.display()));
        debian.arg(format!("--customize-hook='{}' \"$1\"", source.join("customize.sh").display()));
        debian.arg(DEBIAN).arg(context.path().join("root.tar"));
        work.run(&mut debian)?;
        work.buildah(&source.join("Containerfile"), context.path(), &name, &dir.join(ARCHIVE))
    })?;
    Ok(Image { name, archive: dir.join(ARCHIVE) })
}
