# LZFoo's second level, which weighs the copies of many places: a part of lzfoo.pyx.

cdef enum:
    # The pure twin explains these.
    CANDIDATES = 16
    LONG_ENOUGH = 64
    BLOCK = 8192
    COPY_SIZE_MIN = 4
    # The sequels of a place: a copy where a literal goes on, and elsewhere.
    IN_LITERAL = 1
    AFTER_COPY = 2


cdef struct Weighed:
    # The longest copy from near by, and from farther away if that is longer; then the least
    # cost from here on if a literal goes on, and if not, and the copy that achieves it.
    uint8_t near
    uint8_t near_distance
    uint8_t longest
    uint8_t chosen
    uint32_t longest_distance
    uint32_t distance
    uint32_t in_literal
    uint32_t after_copy
    uint8_t length


cdef inline size_t head_of(int bits, uint32_t octets) noexcept nogil:
    return (octets * <uint32_t>0x9E3779B1) >> (32 - bits)


cdef inline uint32_t chain(const Finder *finder, uint32_t *table, const uint8_t *here) noexcept nogil:
    """Put a place before those with the same four bytes; the position of the first of them."""
    cdef uint32_t position = finder.base + <uint32_t>(here - finder.low)
    cdef uint32_t *head = table + head_of(finder.bits, load_32(here))
    cdef uint32_t *links = table + (<size_t>1 << finder.bits)
    cdef uint32_t before = head[0]
    head[0] = position
    links[position & ((<uint32_t>2 << finder.bits) - 1)] = before
    return before


cdef size_t look(
    const Finder *finder, uint32_t *table, const uint8_t *here, Weighed *found
) noexcept nogil:
    """Chain a place, and find the longest copies for it; the length of the longest."""
    cdef uint32_t candidate = chain(finder, table, here)
    cdef uint32_t position = finder.base + <uint32_t>(here - finder.low)
    cdef uint32_t mask = (<uint32_t>2 << finder.bits) - 1
    cdef uint32_t reach = min(reach_at(finder, here), mask + 1)
    cdef const uint32_t *links = table + (<size_t>1 << finder.bits)
    cdef const uint8_t *end = finder.end
    cdef uint32_t away, last = 0
    cdef const uint8_t *ending
    cdef size_t length, longest = 0
    cdef int turn
    found.near = found.longest = 0
    found.longest_distance = 0
    for turn in range(CANDIDATES):
        away = position - candidate
        # Links to places outside the window lead anywhere, but never further back in order.
        if away <= last or away > reach:
            break
        last = away
        ending = here + (longest - 3 if longest else 0)
        if load_32(ending) == load_32(ending - away) and load_32(here) == load_32(here - away):
            length = 4 + common(here + 4 - away, here + 4, end)
            if length > longest:
                longest = length
                found.longest_distance = away
                found.longest = <uint8_t>min(length, <size_t>LONG_ENOUGH)
                if away < WIDE:
                    found.near = found.longest
                    found.near_distance = <uint8_t>away
                if longest >= LONG_ENOUGH or here + longest >= end:
                    break
        candidate = links[candidate & mask]
    return longest


cdef inline uint32_t price(size_t length, uint32_t distance) noexcept nogil:
    """The size of a copy element."""
    return 1 + (length >= LONG) + offset_size(distance)


cdef void weigh(Weighed *places, size_t count) noexcept nogil:
    """Find the cheapest elements for `count` places, from the last one on.

    A longer rest costs no less: of the copies from one distance the longest is always the best.
    """
    cdef Weighed *place = places + count
    cdef uint32_t cost, other
    cdef size_t length, left = 0
    place.in_literal = place.after_copy = 0
    while place != places:
        place -= 1
        left += 1
        cost = 0xFFFFFFFF - 2
        length = min(<size_t>place.near, left)
        if length >= COPY_SIZE_MIN:
            cost = price(length, place.near_distance) + place[length].after_copy
            place.length = <uint8_t>length
            place.distance = place.near_distance
        length = min(<size_t>place.longest, left)
        if length >= COPY_SIZE_MIN and place.longest > place.near:
            other = price(length, place.longest_distance) + place[length].after_copy
            if other < cost:
                cost = other
                place.length = <uint8_t>length
                place.distance = place.longest_distance
        place.chosen = 0
        place.in_literal = 1 + place[1].in_literal
        place.after_copy = 2 + place[1].in_literal
        # A copy that saves less than two bytes is not worth the time that it takes.
        if cost + 1 < place.in_literal:
            place.in_literal = cost
            place.chosen |= IN_LITERAL
        if cost + 1 < place.after_copy:
            place.after_copy = cost
            place.chosen |= AFTER_COPY


cdef uint8_t *put_weighed(
    Weighed *places,
    const uint8_t *start,
    const uint8_t *stop,
    const uint8_t **pending,
    uint8_t *target,
    const uint8_t *limit,
    const uint8_t *end,
) noexcept nogil:
    """Write the cheapest elements for the places from `start` to `stop`; NULL if there is no room.

    From `pending` on nothing is written.
    """
    cdef const uint8_t *here = start
    cdef Weighed *place
    weigh(places, stop - start)
    while here < stop:
        place = places + (here - start)
        if not place.chosen & (IN_LITERAL if here > pending[0] else AFTER_COPY):
            here += 1
            continue
        if here - pending[0] > limit - target:
            return NULL
        target = put_literal(target, pending[0], here - pending[0], end)
        target = put_copy(target, place.length, place.distance)
        here += place.length
        pending[0] = here
    return target


cdef uint8_t *write_thoroughly(
    const Finder *finder,
    uint32_t *table,
    Weighed *places,
    const uint8_t *here,
    uint8_t *target,
    const uint8_t *limit,
) noexcept nogil:
    """As `write_quickly`, with fewer bytes in more time.  There are BLOCK + PLACE `places`."""
    cdef const uint8_t *end = finder.end
    cdef const uint8_t *pending = here
    cdef const uint8_t *start = here
    cdef size_t length
    cdef uint32_t distance
    while end - here >= PLACE:
        length = look(finder, table, here, places + (here - start))
        if length < LONG_ENOUGH:
            here += 1
            if here - start < BLOCK:
                continue
            target = put_weighed(places, start, here, &pending, target, limit, end)
            if target == NULL:
                return NULL
            start = here
            continue
        distance = places[here - start].longest_distance
        target = put_weighed(places, start, here, &pending, target, limit, end)
        if target == NULL or here - pending > limit - target:
            return NULL
        target = put_literal(target, pending, here - pending, end)
        target = put_copy(target, length, distance)
        pending = start = here + length
        here += 1
        while here < pending:
            if end - here >= PLACE:
                chain(finder, table, here)
            here += 1
    while here < end:
        places[here - start].near = places[here - start].longest = 0
        here += 1
    target = put_weighed(places, start, here, &pending, target, limit, end)
    return NULL if target == NULL else put_rest(target, limit, pending, end)
