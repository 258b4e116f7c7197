//! An earlier version of the product, made from this clone's history: its chart and the image of its operator. Built once for each
//! commit, which takes minutes, and kept in the user's cache.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use aquifer_lab::Lab;
use aquifer_lab::recipe::{self, ARCHIVE, Image};

use crate::operator_image::{self, NAME, Profile};

const CHART: &str = "charts/aquifer";

/// A version that was.
#[derive(Debug, Clone)]
pub struct Earlier {
    /// The folder of its chart.
    pub chart: PathBuf,
    /// Its operator. The name is that of today's image, too: nodes need to know one of them by another name.
    pub image: Image,
}

/// The version of a commit. Blocks.
pub fn version(commit: &str) -> Result<Earlier> {
    let target = Lab::root().parent().map(Path::to_path_buf).context("there is no target folder")?;
    let clone = target.parent().context("there is no workspace")?;
    let name = format!("aquifer-{commit}");
    let what = format!("building Aquifer as it was at {commit}");
    let dir = recipe::once(&name, &what, |dir, work| {
        known(clone, commit)?;
        let room = work.dir()?;
        let (archive, workspace) = (room.path().join("archive.tar"), room.path().join("workspace"));
        std::fs::create_dir(&workspace)?;
        let mut git = git(clone);
        git.args(["archive", "--format=tar", "--output"]).arg(&archive).arg(commit);
        work.run(&mut git)?;
        work.run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&workspace))?;
        let target = workspace.join("target");
        std::fs::create_dir(&target)?;
        let built = operator_image::image_of(&workspace, &target, Profile::Dev, commit)?;
        std::fs::copy(&built.image.archive, dir.join(ARCHIVE))?;
        work.run(Command::new("cp").arg("-R").arg(workspace.join(CHART)).arg(dir.join("chart")))
    })?;
    Ok(Earlier {
        chart: dir.join("chart"),
        image: Image { name: NAME.to_owned(), archive: dir.join(ARCHIVE) },
    })
}

/// Fails, and says what to do, when the clone does not have the commit.
fn known(clone: &Path, commit: &str) -> Result<()> {
    let mut git = git(clone);
    let found = git.args(["cat-file", "-e", &format!("{commit}^{{commit}}")]).output();
    let found =
        found.context("an earlier version is made from the history, but there is no git on the PATH")?;
    ensure!(
        found.status.success(),
        "cannot make the earlier version {commit}: this clone does not have that commit. If the clone is shallow, run `git fetch --unshallow`"
    );
    Ok(())
}

fn git(clone: &Path) -> Command {
    let mut git = Command::new("git");
    // The clone may belong to another user than the one who tests.
    git.arg("-c").arg(format!("safe.directory={}", clone.display())).arg("-C").arg(clone);
    git
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_the_clone_does_not_have_is_named_with_what_to_do() {
        let clone = Path::new(env!("CARGO_MANIFEST_DIR"));
        let commit = "0000000000000000000000000000000000000001";
        let error = known(clone, commit).unwrap_err().to_string();
        assert!(error.contains(commit) && error.contains("git fetch --unshallow"), "{error}");
    }
}
