# The way down to a leaf, kept for one place after the other: the next one is mostly in the same
# leaf or in the one beside it, and the way there is then a step or two long.  Needs btree.pxi.
# The tree must not change meanwhile.

cdef enum:
    # So much of a leaf is fetched before it is asked for.
    AHEAD_SIZE = 2048

cdef struct Trail:
    Path path
    # Of the child on the way, at each depth: the number of items before it, and the combined
    # low words of their states.
    uint64_t[DEPTH_MAX] ranks
    uint64_t[DEPTH_MAX] sums


cdef inline void fetch_leaf(const Store *store, const Node *leaf) noexcept nogil:
    """Have it on its way from memory before it is looked at."""
    cdef Py_ssize_t at, size = size_of(store, 0)
    for at in range(0, min(size, <Py_ssize_t>AHEAD_SIZE), 64):
        prefetch(<const uint8_t *>leaf + at)


cdef inline void enter_node(Trail *trail, Py_ssize_t depth, Node *node) noexcept nogil:
    """The way goes on to `node`, as yet to its first child."""
    trail.path.nodes[depth] = node
    trail.path.places[depth] = 0
    if depth:
        trail.ranks[depth] = trail.ranks[depth - 1]
        trail.sums[depth] = trail.sums[depth - 1]
    else:
        trail.ranks[0] = trail.sums[0] = 0


cdef void turn_to(
    const Store *store, Trail *trail, Py_ssize_t depth, Py_ssize_t place
) noexcept nogil:
    """Go on to the child at `place` of the node at `depth`."""
    cdef Node *inner = trail.path.nodes[depth]
    cdef Node **children = children_of(store, inner)
    cdef Py_ssize_t at = trail.path.places[depth]
    cdef uint64_t rank = trail.ranks[depth], sum = trail.sums[depth]
    cdef int kind = store.layout.kind
    cdef bint is_next = place == at + 1
    while at < place:
        rank += counts_of(store, inner)[at]
        sum = plus(kind, sum, state_of(store, inner, at)[0])
        at += 1
    while at > place:
        at -= 1
        rank -= counts_of(store, inner)[at]
        sum = partner(kind, sum, state_of(store, inner, at)[0])
    trail.path.places[depth] = place
    trail.ranks[depth], trail.sums[depth] = rank, sum
    enter_node(trail, depth + 1, children[place])
    if inner.level > 1:
        return
    if is_next and place + 1 < inner.count:
        # Leaf after leaf is read: this one has been on its way since the one before.
        place += 1
    fetch_leaf(store, children[place])


cdef inline Py_ssize_t child_with(
    const Store *store, const Trail *trail, Py_ssize_t depth, uint64_t rank
) noexcept nogil:
    """Which child of the node at `depth` has the item at `rank`; at the end the last one."""
    cdef Node *inner = trail.path.nodes[depth]
    cdef const uint64_t *counts = counts_of(store, inner)
    cdef Py_ssize_t place = trail.path.places[depth]
    cdef uint64_t before = trail.ranks[depth]
    while rank < before:
        place -= 1
        before -= counts[place]
    while place + 1 < inner.count and rank - before >= counts[place]:
        before += counts[place]
        place += 1
    return place


cdef inline bint leads_to_rank(
    const Store *store, const Trail *trail, Py_ssize_t depth, uint64_t rank
) noexcept nogil:
    """Whether the item at `rank` is below the child on the way at `depth`."""
    cdef uint64_t count = counts_of(store, trail.path.nodes[depth])[trail.path.places[depth]]
    return trail.ranks[depth] <= rank < trail.ranks[depth] + count


cdef inline bint leads_to_key(
    const Store *store, const Trail *trail, Py_ssize_t depth, const uint8_t *key
) noexcept nogil:
    """Whether `key` is surely below the child on the way at `depth`."""
    cdef Node *inner = trail.path.nodes[depth]
    cdef Py_ssize_t place = trail.path.places[depth]
    return (
        place + 1 < inner.count
        and order(&store.layout, slot_of(store, inner, place), key) <= 0
        and order(&store.layout, slot_of(store, inner, place + 1), key) > 0
    )


cdef inline Py_ssize_t child_near(
    const Store *store, Node *inner, Py_ssize_t place, const uint8_t *key
) noexcept nogil:
    """The same as `child_for`, which is mostly the next one."""
    if (
        place + 2 < inner.count
        and order(&store.layout, slot_of(store, inner, place + 1), key) <= 0
        and order(&store.layout, slot_of(store, inner, place + 2), key) > 0
    ):
        return place + 1
    return child_for(store, inner, key)


cdef void walk_to_rank(
    const Store *store, const Version *version, Trail *trail, uint64_t rank
) noexcept nogil:
    """Go to the leaf of the item at `rank`, at the end to the last one."""
    cdef Py_ssize_t depth = trail.path.depth
    cdef Node *node
    if trail.path.nodes[0] != version.root:
        enter_node(trail, 0, version.root)
        depth = 0
    while depth and not leads_to_rank(store, trail, depth - 1, rank):
        depth -= 1
    node = trail.path.nodes[depth]
    while node.level:
        turn_to(store, trail, depth, child_with(store, trail, depth, rank))
        depth += 1
        node = trail.path.nodes[depth]
    trail.path.depth = depth


cdef void walk_to_key(
    const Store *store, const Version *version, Trail *trail, const uint8_t *key
) noexcept nogil:
    """Go to the leaf where `key` is, or would be."""
    cdef Py_ssize_t depth = trail.path.depth
    cdef Node *node
    if trail.path.nodes[0] != version.root:
        enter_node(trail, 0, version.root)
        depth = 0
    while depth and not leads_to_key(store, trail, depth - 1, key):
        depth -= 1
    node = trail.path.nodes[depth]
    while node.level:
        turn_to(store, trail, depth, child_near(store, node, trail.path.places[depth], key))
        depth += 1
        node = trail.path.nodes[depth]
    trail.path.depth = depth


cdef uint64_t leaf_of(
    const Store *store, const Version *version, const Trail *trail, Run *run
) noexcept nogil:
    """The leaf at the end of the way, and the combined low words before it."""
    cdef Py_ssize_t above = trail.path.depth - 1
    cdef Node *leaf = trail.path.nodes[trail.path.depth]
    if above < 0:
        set_run(store, run, leaf, 0, version.count, NULL)
        return 0
    set_run(
        store, run, leaf, trail.ranks[above],
        counts_of(store, trail.path.nodes[above])[trail.path.places[above]], NULL,
    )
    return trail.sums[above]
