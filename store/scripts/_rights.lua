-- _rights: whether a person's right is still what it was read from, in the step that uses it.

-- What another slot has under a key; nil in a cluster, where this node may not have it: the caller has read it just before.
local function elsewhere(key)
  local found = redis.pcall('GET', key)
  if type(found) == 'table' then return nil end
  return found or ''
end

-- rights: JSON of {version = of the grants, tags, owner}, as `store/access/people.py` read them; "" of whom no grant is.
local function have_changed(rights)
  if rights == '' then return false end
  local read, here = cjson.decode(rights), redis.call('HMGET', root, 'right_tags', 'owner')
  local version = elsewhere('{access}:grants_version')
  return (here[1] or '{}') ~= read.tags or (here[2] or '') ~= read.owner or (version ~= nil and version ~= read.version)
end
