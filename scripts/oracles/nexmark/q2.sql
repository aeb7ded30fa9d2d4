-- Bids for every 123rd auction.
SELECT auction, price FROM bids WHERE auction % 123 = 0;
-- What the job wrote.
SELECT * FROM read_json('{results}', format = 'newline_delimited', columns = {auction: 'BIGINT', price: 'BIGINT'});
