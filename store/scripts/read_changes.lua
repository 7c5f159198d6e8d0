-- read_changes: the changes of the inbox after an id, as many as fit, and what the stream still holds.
-- KEYS  root of the approvals
-- ARGV  after:text id  most:int changes  most_bytes:int that end the page: the change that reaches them is its last
-- Returns  (held:int first:text last:text changes:(id:text fields:hash)[]): number of changes that the stream holds, its
--          first and last id, "" where it is empty
-- Cost  O(log s + m): s changes in the stream, m changes read
-- Idempotent  reads only
local STRIDE = 16
local first = redis.call('XRANGE', root .. ':stream', '-', '+', 'COUNT', 1)[1]
local last = redis.call('XREVRANGE', root .. ':stream', '+', '-', 'COUNT', 1)[1]
local page, size = {}, 0
while most > 0 and size < most_bytes do
  local changes = redis.call('XRANGE', root .. ':stream', '(' .. after, '+', 'COUNT', math.min(most, STRIDE))
  if #changes == 0 then break end
  for _, change in ipairs(changes) do
    if size >= most_bytes then break end
    page[#page + 1], page[#page + 2] = change[1], change[2]
    for _, part in ipairs(change[2]) do size = size + #part end
    after = change[1]
    most = most - 1
  end
end
return {redis.call('XLEN', root .. ':stream'), first and first[1] or '', last and last[1] or '', page}
