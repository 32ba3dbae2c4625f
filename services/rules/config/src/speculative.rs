//! The layout a change is tested with before it is merged: what of its own configuration counts, and what does not.
//!
//! Zuul: of a change to an untrusted project jobs, projects, templates, nodesets, secrets, queues and pragmas count at
//! once, and so do the names of images, flavors and labels. Pipelines, semaphores, sections and providers are looked
//! through, so that what is wrong with them is told, and are those of the tenant until the change is merged: there is one
//! room in a semaphore, and one fleet of machines, for all changes at the same time.

use crate::layout::Layout;

/// Classes of objects of which a change's own never count.
const STATIC_CLASSES: [&str; 2] = ["section", "provider"];

impl Layout {
    /// Makes a layout that was loaded with a change's files the one the change is tested with: what is static comes from the
    /// `tenant`'s layout. To be called when loading has told what is wrong with the change's own.
    ///
    /// Which queue a project shares is static, too: where the tenant knows the project, it stays as it is.
    pub fn keep_static(&mut self, tenant: &Layout) {
        self.pipelines.clone_from(&tenant.pipelines);
        self.pipeline_order.clone_from(&tenant.pipeline_order);
        self.semaphores.clone_from(&tenant.semaphores);
        self.global_semaphores.clone_from(&tenant.global_semaphores);
        for class in STATIC_CLASSES {
            match tenant.named.get(class) {
                Some(known) => self.named.insert(class.to_owned(), known.clone()),
                None => self.named.remove(class),
            };
        }
        for (name, project) in &mut self.projects {
            let Some(known) = tenant.projects.get(name) else { continue };
            project.queue.clone_from(&known.queue);
            let Some(queue) = &known.queue else { continue };
            // The queue itself, with its settings; the change may have taken it away.
            if let Some(settings) = tenant.queues.get(queue) {
                self.queues.insert(queue.clone(), settings.clone());
            }
        }
    }
}
