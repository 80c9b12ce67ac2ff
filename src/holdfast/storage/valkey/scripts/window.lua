-- The messages of a session in their order; none once it has expired. They come as one text, with the length of each
-- before it: a client reads one long text much faster than many short ones. Given an id, only those written under it.
local head = redis.call('ZRANGE', KEYS[1], '0', '0')[1]
if not head or tonumber(string.match(head, '^%d+')) <= tonumber(ARGV[1]) then
    return {'', ''}
end
if ARGV[2] and string.match(head, '^%d+ %d+ %d+ (.*)$') ~= ARGV[2] then
    return {'', ''}
end
local messages = redis.call('ZRANGE', KEYS[1], '1', '-1')
local lengths = {}
for at, message in ipairs(messages) do
    lengths[at] = #message
end
return {table.concat(lengths, ' '), table.concat(messages)}
