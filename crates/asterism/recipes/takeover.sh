#!/bin/sh
# Tells every switch and neighbour that the NAT's addresses, and its Ethernet addresses, are here now (gratuitous ARP).
sysctl -q net.ipv4.ip_nonlocal_bind=1
for round in 1 2 3; do
    arping -q -U -c 1 -I in -s 10.77.0.1 10.77.0.1
    arping -q -U -c 1 -I out -s 198.51.100.1 198.51.100.1
done
