-- read_versions: the present versions of many conversations. They lie in as many slots: a cluster is not asked so.
-- KEYS  roots of the conversations
-- ARGV  fields:text* that make a version
-- Returns  bytes*: their values joined by blanks, none for an absent one, in the order of the roots
-- Cost  O(c): c conversations
-- Idempotent  reads only
local versions = {}
for i, root in ipairs(KEYS) do
  local values = redis.call('HMGET', root, unpack(fields))
  for field = 1, #fields do values[field] = values[field] or '' end
  versions[i] = table.concat(values, ' ')
end
return versions
