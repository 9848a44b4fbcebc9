//! Spatial values and vectors.

use crate::java_floats;
use crate::json_text;

/// Split MySQL's form: 4 bytes SRID (little-endian), then well-known binary.
fn parts(data: &[u8]) -> Option<(u32, &[u8])> {
    let (srid, wkb) = data.split_first_chunk::<4>()?;
    (wkb.len() >= 5).then_some((u32::from_le_bytes(*srid), wkb))
}

fn members(out: &mut Vec<u8>, srid: u32, wkb: &[u8]) {
    out.extend_from_slice(b"\"wkb\":\"");
    json_text::base64(out, wkb);
    out.extend_from_slice(b"\",\"srid\":");
    if srid == 0 {
        out.extend_from_slice(b"null");
    } else {
        json_text::unsigned(out, u64::from(srid));
    }
    out.push(b'}');
}

/// Add a spatial value; None when it is too short.
pub fn geometry(out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
    let (srid, wkb) = parts(data)?;
    out.push(b'{');
    members(out, srid, wkb);
    Some(())
}

/// Add a POINT; None when it is something else.
pub fn point(out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
    let (srid, wkb) = parts(data)?;
    let (order, rest) = wkb.split_first()?;
    let (kind, rest) = rest.split_first_chunk::<4>()?;
    let (x, rest) = rest.split_first_chunk::<8>()?;
    let y: &[u8; 8] = rest.try_into().ok()?;
    let (kind, x, y) = match order {
        1 => (u32::from_le_bytes(*kind), f64::from_le_bytes(*x), f64::from_le_bytes(*y)),
        0 => (u32::from_be_bytes(*kind), f64::from_be_bytes(*x), f64::from_be_bytes(*y)),
        _ => return None,
    };
    if kind != 1 {
        return None;
    }
    out.extend_from_slice(b"{\"x\":");
    java_floats::double(out, x)?;
    out.extend_from_slice(b",\"y\":");
    java_floats::double(out, y)?;
    out.push(b',');
    members(out, srid, wkb);
    Some(())
}

/// Add a VECTOR (little-endian floats) as an array; None when it is not a whole number of floats.
pub fn vector(out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
    let floats = data.chunks_exact(4);
    if !floats.remainder().is_empty() {
        return None;
    }
    out.push(b'[');
    for (index, float) in floats.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        java_floats::float(out, f32::from_le_bytes(float.try_into().ok()?))?;
    }
    out.push(b']');
    Some(())
}
