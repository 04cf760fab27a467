// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tree without its entries. Everything here is compiled once.

use core::ptr;

/// What a node begins with. Null pointers are absent nodes.
pub struct Header {
    parent: *mut Header,
    /// Smaller and larger entries.
    child: [*mut Header; 2],
    /// Of the subtree: 1 for a leaf. A tree as high as 255 would hold more than 2^170 entries.
    height: u8,
}

pub type Link = *mut Header;

/// The side of smaller entries, and that of larger ones.
pub const LEFT: usize = 0;
pub const RIGHT: usize = 1;

impl Header {
    pub const fn new() -> Header {
        Header { parent: ptr::null_mut(), child: [ptr::null_mut(); 2], height: 1 }
    }
}

/// A tree, and how many nodes it has.
pub struct Tree {
    pub root: Link,
    pub len: usize,
}

/// # Safety
///
/// `node` is null or a node.
unsafe fn height(node: Link) -> u8 {
    // SAFETY: by the caller's word.
    if node.is_null() { 0 } else { unsafe { (*node).height } }
}

/// # Safety
///
/// `node` is a node.
pub unsafe fn child(node: Link, side: usize) -> Link {
    // SAFETY: by the caller's word.
    unsafe { (*node).child[side] }
}

/// The node furthest to one side, below and with `node`.
///
/// # Safety
///
/// `node` is null or a node.
pub unsafe fn outermost(mut node: Link, side: usize) -> Link {
    // SAFETY: by the caller's word, and children of a node are null or nodes.
    unsafe {
        while !node.is_null() && !child(node, side).is_null() {
            node = child(node, side);
        }
    }
    node
}

/// The next node in order to that side; null behind the last one.
///
/// # Safety
///
/// `node` is a node.
pub unsafe fn step(mut node: Link, side: usize) -> Link {
    // SAFETY: `node` is a node, and so are its relatives unless they are null.
    unsafe {
        if !child(node, side).is_null() {
            return outermost(child(node, side), side ^ 1);
        }
        loop {
            let parent = (*node).parent;
            if parent.is_null() || child(parent, side) != node {
                return parent;
            }
            node = parent;
        }
    }
}

impl Tree {
    pub const fn new() -> Tree {
        Tree { root: ptr::null_mut(), len: 0 }
    }

    /// Puts `new`, which may be null, where `old` is below `parent`.
    ///
    /// # Safety
    ///
    /// `old` is a child of `parent`, or the root and `parent` null.
    unsafe fn relink(&mut self, parent: Link, old: Link, new: Link) {
        // SAFETY: by the caller's word.
        unsafe {
            if parent.is_null() {
                self.root = new;
            } else {
                let side = usize::from(child(parent, RIGHT) == old);
                (*parent).child[side] = new;
            }
            if !new.is_null() {
                (*new).parent = parent;
            }
        }
    }

    /// Makes the child on `side` the root of the subtree of `node`, which becomes its child on the other side.
    ///
    /// # Safety
    ///
    /// `node` is a node of this tree with a child on that side.
    unsafe fn rotate(&mut self, node: Link, side: usize) -> Link {
        // SAFETY: by the caller's word.
        unsafe {
            let up = child(node, side);
            let inner = child(up, side ^ 1);
            self.relink((*node).parent, node, up);
            (*up).child[side ^ 1] = node;
            (*node).parent = up;
            (*node).child[side] = inner;
            if !inner.is_null() {
                (*inner).parent = node;
            }
            measure(node);
            measure(up);
            up
        }
    }

    /// Restores the balance from `node` upwards, below which a height changed by one.
    ///
    /// # Safety
    ///
    /// `node` is null or a node of this tree.
    unsafe fn balance(&mut self, mut node: Link) {
        // SAFETY: nodes of this tree, and a side that is two higher than the other one has a node whose own higher side has one.
        unsafe {
            while !node.is_null() {
                let before = (*node).height;
                let (left, right) = (height(child(node, LEFT)), height(child(node, RIGHT)));
                if left.abs_diff(right) < 2 {
                    measure(node);
                } else {
                    let side = usize::from(right > left);
                    let high = child(node, side);
                    if height(child(high, side ^ 1)) > height(child(high, side)) {
                        self.rotate(high, side ^ 1);
                    }
                    node = self.rotate(node, side);
                }
                if (*node).height == before {
                    return;
                }
                node = (*node).parent;
            }
        }
    }

    /// Adds a node below `parent`, or as the first one.
    ///
    /// # Safety
    ///
    /// `node` is fresh; `parent` is a node of this tree without a child on that side, or null in an empty tree.
    pub unsafe fn add(&mut self, node: Link, parent: Link, side: usize) {
        // SAFETY: by the caller's word.
        unsafe {
            (*node).parent = parent;
            if parent.is_null() {
                self.root = node;
            } else {
                (*parent).child[side] = node;
            }
            self.len += 1;
            self.balance(parent);
        }
    }

    /// Takes a node out. The caller owns it afterwards.
    ///
    /// # Safety
    ///
    /// `node` is a node of this tree.
    pub unsafe fn take(&mut self, node: Link) {
        // SAFETY: by the caller's word; a node with two children has a next one, which has no left child.
        unsafe {
            let [left, right] = (*node).child;
            let parent = (*node).parent;
            let low = if left.is_null() || right.is_null() {
                self.relink(parent, node, if left.is_null() { right } else { left });
                parent
            } else {
                let next = outermost(right, LEFT);
                let low = if next == right {
                    next
                } else {
                    let above = (*next).parent;
                    self.relink(above, next, child(next, RIGHT));
                    (*next).child[RIGHT] = right;
                    (*right).parent = next;
                    above
                };
                self.relink(parent, node, next);
                (*next).child[LEFT] = left;
                (*left).parent = next;
                (*next).height = (*node).height;
                low
            };
            self.len -= 1;
            self.balance(low);
        }
    }

    /// Takes out any leaf, without regard to balance: for who takes out all. Null when it is empty.
    pub fn take_leaf(&mut self) -> Link {
        let mut node = self.root;
        // SAFETY: nodes of this tree; a leaf's parent forgets it.
        unsafe {
            while !node.is_null() {
                let [left, right] = (*node).child;
                if left.is_null() && right.is_null() {
                    self.relink((*node).parent, node, ptr::null_mut());
                    self.len -= 1;
                    return node;
                }
                node = if left.is_null() { right } else { left };
            }
        }
        ptr::null_mut()
    }
}

/// Computes a node's height from those of its children.
///
/// # Safety
///
/// `node` is a node.
unsafe fn measure(node: Link) {
    // SAFETY: by the caller's word.
    unsafe {
        (*node).height = 1 + height(child(node, LEFT)).max(height(child(node, RIGHT)));
    }
}

/// Checks parents, heights and balance below `node`, and answers the number of nodes.
///
/// # Safety
///
/// `node` is null or a node.
#[cfg(test)]
pub unsafe fn check(node: Link, parent: Link) -> usize {
    if node.is_null() {
        return 0;
    }
    // SAFETY: by the caller's word.
    unsafe {
        assert_eq!((*node).parent, parent);
        let [left, right] = (*node).child;
        assert!(height(left).abs_diff(height(right)) < 2, "out of balance");
        assert_eq!((*node).height, 1 + height(left).max(height(right)));
        check(left, node) + check(right, node) + 1
    }
}
