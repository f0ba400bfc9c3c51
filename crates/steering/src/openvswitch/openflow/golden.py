"""Makes golden.txt: messages of OpenFlow 1.3 and 1.5 as os-ken encodes them (pip: os-ken 4.2.2).

    python golden.py > golden.txt

Each line: version, name, bytes in hexadecimal. The tests read the lines and do not need os-ken. Messages that only a switch
sends are packed here from os-ken's formats, since os-ken parses them and does not make them.
"""
import struct

from os_ken.ofproto import ofproto_protocol, ofproto_v1_3, ofproto_v1_3_parser
from os_ken.ofproto import ofproto_v1_5, ofproto_v1_5_parser

MACS = ["02:00:00:00:00:%02x" % n for n in range(1, 4)]


def versions():
    yield "1.3", ofproto_v1_3, ofproto_v1_3_parser
    yield "1.5", ofproto_v1_5, ofproto_v1_5_parser


def put(label, name, message, xid):
    message.set_xid(xid)
    message.serialize()
    print(label, name, bytes(message.buf).hex())


def packed(label, ofp, name, kind, body, xid):
    head = struct.pack("!BBHI", ofp.OFP_VERSION, kind, 8 + len(body), xid)
    print(label, name, (head + body).hex())


def main():
    for label, ofp, p in versions():
        number = {"1.3": 4, "1.5": 6}[label]
        dp = ofproto_protocol.ProtocolDesc(version=number)
        bitmap = struct.pack("!HHI", ofp.OFPHET_VERSIONBITMAP, 8, 1 << 4 | 1 << 6)
        packed(label, ofp, "hello", 0, bitmap, 1)
        put(label, "error", p.OFPErrorMsg(dp, type_=5, code=1, data=b"abcdefgh"), 2)
        put(label, "echo-request", p.OFPEchoRequest(dp, b"xyz"), 3)
        put(label, "echo-reply", p.OFPEchoReply(dp, b"xyz"), 4)
        put(label, "features-request", p.OFPFeaturesRequest(dp), 5)
        body = struct.pack("!QIBBxxII", 0x1122334455667788, 0, 254, 0, 0x4F, 0)
        packed(label, ofp, "features", 6, body, 6)
        put(label, "config-request", p.OFPGetConfigRequest(dp), 7)
        put(label, "set-config", p.OFPSetConfig(dp, 0, 128), 8)
        if label == "1.3":
            put(label, "set-async", p.OFPSetAsync(dp, [0, 0], [7, 7], [0, 0]), 9)
        else:
            masks = [0, 0, 7, 7] + [0] * 8
            props = [p.OFPAsyncConfigPropReasons(k, mask=m) for k, m in enumerate(masks)]
            put(label, "set-async", p.OFPSetAsync(dp, props), 9)

        def port(n, name, config, state):
            hw, text = bytes.fromhex("020000000a%02x" % n), name.encode()
            if label == "1.3":
                return struct.pack("!I4x6s2x16sIIIIIIII", n, hw, text, config, state, *[0] * 6)
            return struct.pack("!IH2x6s2x16sII", n, 40, hw, text, config, state)

        ports = [port(1, "to-a", 0, 4), port(2, "to-b", 1, 1)]
        packed(label, ofp, "port-status", 12, struct.pack("!B7x", 2) + ports[1], 10)
        packed(label, ofp, "ports", 19, struct.pack("!HH4x", 13, 0) + b"".join(ports), 11)
        if label == "1.3":
            put(label, "ports-request", p.OFPPortDescStatsRequest(dp, 0), 12)
            put(label, "groups-request", p.OFPGroupDescStatsRequest(dp, 0), 13)
        else:
            put(label, "ports-request", p.OFPPortDescStatsRequest(dp, 0, ofp.OFPP_ANY), 12)
            put(label, "groups-request", p.OFPGroupDescStatsRequest(dp, 0, 0x41730000), 13)

        match4 = p.OFPMatch(in_port=9, eth_type=0x0800, ipv4_dst=("203.0.113.0", "255.255.255.248"))
        match6 = p.OFPMatch(in_port=9, eth_type=0x86DD, ipv6_dst="2001:db8::1")
        group = [p.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, [p.OFPActionGroup(0x41730000)])]

        def flow(command, match, instructions, mask):
            return p.OFPFlowMod(
                dp, cookie=0xA57E, cookie_mask=mask, table_id=0, command=command, priority=1000,
                buffer_id=ofp.OFP_NO_BUFFER, out_port=ofp.OFPP_ANY, out_group=ofp.OFPG_ANY,
                match=match, instructions=instructions)

        add4 = flow(ofp.OFPFC_ADD, match4, group, 0)
        put(label, "flow-add-v4", add4, 14)
        put(label, "flow-add-v6", flow(ofp.OFPFC_ADD, match6, group, 0), 15)
        put(label, "flow-delete", flow(ofp.OFPFC_DELETE_STRICT, match4, [], 2**64 - 1), 16)
        request = p.OFPFlowStatsRequest if label == "1.3" else p.OFPFlowDescStatsRequest
        put(label, "flows-request", request(
            dp, 0, 0, ofp.OFPP_ANY, ofp.OFPG_ANY, 0xA57E, 2**64 - 1, p.OFPMatch()), 17)

        # A flow that is there, made from os-ken's match and instructions.
        both = bytearray()
        match4.serialize(both, 0)
        if label == "1.5":
            p.OFPStats().serialize(both, len(both))
        group[0].serialize(both, len(both))
        if label == "1.3":
            body = struct.pack("!HBxIIHHHH4xQQQ", 48 + len(both), 0, 0, 0, 1000, 0, 0, 0, 0xA57E, 0, 0)
        else:
            body = struct.pack("!H2xBxHHHHHQ", 24 + len(both), 0, 1000, 0, 0, 0, 0, 0xA57E)
        packed(label, ofp, "flows", 19, struct.pack("!HH4x", 1, 1) + body + bytes(both), 18)

        buckets = []
        for n, mac in enumerate(MACS):
            actions = [p.OFPActionSetField(eth_dst=mac), p.OFPActionOutput(n + 1, 0)]
            if label == "1.3":
                buckets.append(p.OFPBucket(1, ofp.OFPP_ANY, ofp.OFPG_ANY, actions))
            else:
                weight = p.OFPGroupBucketPropWeight(weight=1, length=8, type_=ofp.OFPGBPT_WEIGHT)
                buckets.append(p.OFPBucket(n, actions, [weight]))
        if label == "1.3":
            change = p.OFPGroupMod(dp, ofp.OFPGC_ADD, ofp.OFPGT_SELECT, 0x41730000, buckets)
        else:
            change = p.OFPGroupMod(dp, ofp.OFPGC_ADD, ofp.OFPGT_SELECT, 0x41730000,
                                   ofp.OFPG_BUCKET_ALL, buckets, [])
        put(label, "group-add", change, 19)
        inside = bytes(change.buf)
        array = inside[16:] if label == "1.3" else inside[24:]
        if label == "1.3":
            body = struct.pack("!HBxI", 8 + len(array), 1, 0x41730000)
        else:
            body = struct.pack("!HBxIH6x", 16 + len(array), 1, 0x41730000, len(array))
        packed(label, ofp, "groups", 19, struct.pack("!HH4x", 7, 0) + body + array, 20)
        put(label, "barrier-request", p.OFPBarrierRequest(dp), 21)
        put(label, "barrier-reply", p.OFPBarrierReply(dp), 22)
        if label == "1.5":
            flags = ofp.OFPBF_ATOMIC | ofp.OFPBF_ORDERED
            for name, kind in (("open", 0), ("commit", 4), ("discard", 6)):
                put(label, "bundle-" + name, p.OFPBundleCtrlMsg(dp, 5, kind, flags, []), 23 + kind)
            add4 = flow(ofp.OFPFC_ADD, match4, group, 0)
            add4.set_xid(24)
            put(label, "bundle-add", p.OFPBundleAddMsg(dp, 5, flags, add4, []), 24)


main()
