// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network namespaces (network_namespaces(7)).

use crate::users::UserNamespace;
use abi::Result;
use alloc::sync::Arc;
use api_lock::SpinLock;
use api_socket::Network;

/// One namespace.
pub struct NetworkNamespace {
    pub network: Arc<Network>,
    /// The user namespace whose capabilities count for it.
    pub owner: UserNamespace,
}

static FIRST: SpinLock<Option<Arc<NetworkNamespace>>> = SpinLock::new(None);

/// The machine's own.
pub fn first() -> Arc<NetworkNamespace> {
    let new = || Arc::new(NetworkNamespace { network: Network::first(), owner: UserNamespace::FIRST });
    FIRST.lock().get_or_insert_with(new).clone()
}

/// One with a loopback interface of its own and no other (CLONE_NEWNET).
pub fn another(owner: UserNamespace) -> Result<Arc<NetworkNamespace>> {
    Ok(Arc::new(NetworkNamespace { network: Network::another()?, owner }))
}
