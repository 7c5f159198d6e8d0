-- read_changes: the changes of the inbox after an id, as many as fit, and what the stream still holds.
-- KEYS  1 approvals root, {approvals}
-- ARGV  1 id to read after   2 most changes   3 bytes that end the page: the change that reaches them is its last
-- Returns  {number of changes that the stream holds, id of its first one, id of its last one, {id, {field, value, …}}, …};
--          both ids are empty where the stream is
-- Cost  O(log s + m): s changes in the stream, m changes read
-- Idempotent  reads only
local STRIDE = 16
local after, most, most_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local first = redis.call('XRANGE', root .. ':stream', '-', '+', 'COUNT', 1)[1]
local last = redis.call('XREVRANGE', root .. ':stream', '+', '-', 'COUNT', 1)[1]
local reply, size = {redis.call('XLEN', root .. ':stream'), first and first[1] or '', last and last[1] or ''}, 0
while most > 0 and size < most_bytes do
  local changes = redis.call('XRANGE', root .. ':stream', '(' .. after, '+', 'COUNT', math.min(most, STRIDE))
  if #changes == 0 then break end
  for _, change in ipairs(changes) do
    if size >= most_bytes then break end
    reply[#reply + 1] = change
    for _, part in ipairs(change[2]) do size = size + #part end
    after = change[1]
    most = most - 1
  end
end
return reply
