// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What clouds tell a computer of itself: a server at an address of the computer's own network says its name and what its owner has
//! given it ("user data"), over HTTP. This crate knows which cloud is which, what to ask, and how to read the answers; who uses it
//! has the connections. Answers are untrusted. It depends on nothing.
//!
//! | cloud | known by (SMBIOS) | documented in |
//! | --- | --- | --- |
//! | `ec2` | vendor `Amazon EC2` | Amazon EC2 User Guide, "Instance metadata" (IMDSv2) |
//! | `gce` | product `Google Compute Engine` | Compute Engine, "About VM metadata" |
//! | `openstack` | product `OpenStack Nova` or `OpenStack Compute` | OpenStack Nova, "Metadata service" (as EC2's) |
//! | `digitalocean` | vendor `DigitalOcean` | DigitalOcean, "Droplet Metadata API" |
//! | `hetzner` | vendor `Hetzner` | Hetzner Cloud, "Server metadata" |
#![no_std]
#![forbid(unsafe_code)]
#[cfg(test)]
extern crate std;

pub mod http;

/// Where all of them listen, and at which port.
pub const ADDRESS: [u8; 4] = [169, 254, 169, 254];
pub const PORT: u16 = 80;
/// Most bytes of an answer's body. EC2 has at most 16 KiB of user data.
pub const MAX_BODY: usize = 16 << 10;
/// Most bytes of a token.
pub const MAX_TOKEN: usize = 256;

/// How one cloud is asked.
#[derive(Debug, PartialEq, Eq)]
pub struct Service {
    /// The word of the kernel's command line.
    pub name: &'static str,
    vendor: &'static [&'static str],
    product: &'static [&'static str],
    /// Asked for first, by PUT with a header; its body is the value of another header in every question. A cloud that does not know it is
    /// asked without.
    pub token: Option<Token>,
    /// A header of every question.
    pub header: &'static str,
    /// Paths of the computer's name and of the user data.
    pub hostname: &'static str,
    pub user: &'static str,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Token {
    pub path: &'static str,
    pub header: &'static str,
    /// The name of the header that carries it.
    pub carrier: &'static str,
}

const EC2_TOKEN: Token = Token {
    path: "/latest/api/token",
    header: "X-aws-ec2-metadata-token-ttl-seconds: 60\r\n",
    carrier: "X-aws-ec2-metadata-token",
};
const EC2_HOSTNAME: &str = "/latest/meta-data/local-hostname";
const EC2_USER: &str = "/latest/user-data";

pub const SERVICES: [Service; 5] = [
    Service {
        name: "ec2",
        vendor: &["Amazon EC2"],
        product: &[],
        token: Some(EC2_TOKEN),
        header: "",
        hostname: EC2_HOSTNAME,
        user: EC2_USER,
    },
    Service {
        name: "gce",
        vendor: &[],
        product: &["Google Compute Engine"],
        token: None,
        header: "Metadata-Flavor: Google\r\n",
        hostname: "/computeMetadata/v1/instance/hostname",
        user: "/computeMetadata/v1/instance/attributes/user-data",
    },
    Service {
        name: "openstack",
        vendor: &[],
        product: &["OpenStack Nova", "OpenStack Compute"],
        token: None,
        header: "",
        hostname: EC2_HOSTNAME,
        user: EC2_USER,
    },
    Service {
        name: "digitalocean",
        vendor: &["DigitalOcean"],
        product: &[],
        token: None,
        header: "",
        hostname: "/metadata/v1/hostname",
        user: "/metadata/v1/user-data",
    },
    Service {
        name: "hetzner",
        vendor: &["Hetzner"],
        product: &[],
        token: None,
        header: "",
        hostname: "/hetzner/v1/metadata/hostname",
        user: "/hetzner/v1/userdata",
    },
];

/// The service of that name.
pub fn by_name(name: &str) -> Option<&'static Service> {
    SERVICES.iter().find(|service| service.name == name)
}

/// The service of the cloud that a computer is in, by what its firmware calls its maker and itself.
pub fn of_computer(vendor: &str, product: &str) -> Option<&'static Service> {
    SERVICES.iter().find(|s| s.vendor.contains(&vendor) || s.product.contains(&product))
}

/// Writes the kernel's command line `line` with the word for a service; answers its length. `None`: it is longer than `out`.
pub fn add_to(line: &[u8], service: &Service, out: &mut [u8]) -> Option<usize> {
    let mut length = 0;
    for piece in [b"metadata=", service.name.as_bytes(), b" ", line] {
        out.get_mut(length..length + piece.len())?.copy_from_slice(piece);
        length += piece.len();
    }
    Some(length)
}

/// A token, if the body of the answer can be one: what is not printable would end the header that carries it.
pub fn token(body: &[u8]) -> Option<&str> {
    let text = core::str::from_utf8(body).ok()?.trim_ascii();
    let is_one = !text.is_empty() && text.len() <= MAX_TOKEN && text.bytes().all(|b| b.is_ascii_graphic());
    is_one.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computers_of_clouds_are_known_by_their_firmware() {
        let name = |vendor, product| of_computer(vendor, product).map(|service| service.name);
        assert_eq!(name("Amazon EC2", "m5.large"), Some("ec2"));
        assert_eq!(name("Google", "Google Compute Engine"), Some("gce"));
        assert_eq!(name("OpenStack Foundation", "OpenStack Nova"), Some("openstack"));
        assert_eq!(name("Hetzner", "vServer"), Some("hetzner"));
        assert_eq!(name("QEMU", "Standard PC (Q35 + ICH9, 2009)"), None);
        assert_eq!(name("", ""), None);
        assert!(SERVICES.iter().all(|service| by_name(service.name) == Some(service)));
        assert_eq!(by_name("azure"), None);
    }

    #[test]
    fn the_word_comes_first_and_fits_or_is_left_out() {
        let mut out = [0; 40];
        let length = add_to(b"log=info -- /bin/x\0", &SERVICES[1], &mut out);
        assert_eq!(&out[..length.unwrap()], b"metadata=gce log=info -- /bin/x\0");
        assert_eq!(add_to(b"log=info -- /bin/x\0", &SERVICES[1], &mut out[..31]), None);
    }

    #[test]
    fn what_would_end_a_header_is_no_token() {
        assert_eq!(token(b"AQAAANjkbeFn==\n"), Some("AQAAANjkbeFn=="));
        assert_eq!(token(b"a\r\nX: y"), None);
        assert_eq!(token(b""), None);
        assert_eq!(token(&[b'a'; MAX_TOKEN + 1]), None);
        assert_eq!(token(b"\xff"), None);
    }
}
